// The life of a sandbox: a pure function from (record, event, time) to the next record and the effects that follow.
// `intended → creating → booting → granted → leased → releasing → gone`, beside them `lost` and
// `failed`. All three ways to end carry the duty to remove, and only `removed` leads to `gone`.
import {
  assertNever,
  BootFailedError,
  ConflictError,
  fromWire,
  LeaseLostError,
  SandboxLostError,
  type WireError,
} from "../../broker/contract/index.ts";
import { stepConnected, stepDisconnected, stepFound, stepSeen, stepServerGone } from "./connections.ts";
import { stepDeadline } from "./deadline.ts";
import { endWith, type Step, stay } from "./end.ts";
import type { Answer, Effect, Limits, SandboxEvent } from "./events.ts";
import { isEnding, isHeld, isPending, type ReplyTo, type SandboxRecord, withReply } from "./record.ts";
import { stepOutageOver, stepRecovered } from "./recovered.ts";
import { somethingAppeared, stepRemoved, stepRemoveFailed } from "./removal.ts";

type EventOf<T extends SandboxEvent["type"]> = Extract<SandboxEvent, { type: T }>;

/** What `event` at `now` (ms since the epoch) makes of `record`. Never throws; the record given is not changed. */
export function step(record: SandboxRecord, event: SandboxEvent, now: number, limits: Limits): Step {
  switch (event.type) {
    case "create_begun":
      return record.state === "intended"
        ? { record: { ...record, state: "creating" }, effects: [] }
        : stay(record);
    case "created":
      return stepCreated(record, event, now);
    case "create_failed":
      return stepCreateFailed(record, event.error);
    case "create_moved":
      return stepCreateMoved(record, event.provider);
    case "enrol":
      return stepEnrol(record, event, now);
    case "ready":
      return stepReady(record, event, now, limits);
    case "attach":
      return stepAttach(record, event, now, limits);
    case "confirm":
      return stepConfirm(record, event);
    case "end":
      return endWith(record, { reason: event.reason, event: event.event });
    case "deadline":
      return stepDeadline(record, now);
    case "provider_failed":
      return stepProviderFailed(record, event);
    case "provider_lost":
      return stepProviderLost(record, event);
    case "connected":
      return stepConnected(record, event.connection, now, limits);
    case "disconnected":
      return stepDisconnected(record, event.connection, now, limits);
    case "found":
      return stepFound(record, event.open, now, limits);
    case "server_gone":
      return stepServerGone(record, event.server, now, limits);
    case "seen":
      return stepSeen(record, event, now, limits);
    case "removed":
      return stepRemoved(record);
    case "remove_failed":
      return stepRemoveFailed(record, now, limits);
    case "outage_over":
      return stepOutageOver(record, now, limits);
    case "recovered":
      return stepRecovered(record, event.listed, now, limits);
    default:
      return assertNever(event);
  }
}

const answer = (reply: ReplyTo, what: Answer): Effect => ({ type: "answer", reply, answer: what });
const refuse = (reply: ReplyTo, error: WireError): Effect => answer(reply, { type: "error", error });

function stepCreated(record: SandboxRecord, { uid }: EventOf<"created">, now: number): Step {
  const next = { ...record, uid, createdAt: record.createdAt ?? now };
  // A create that came late, after its time-out or after the sandbox was already removed: remove what it made.
  if (isEnding(record.state) || record.state === "gone") return somethingAppeared(next);
  const begun = record.state === "intended" || record.state === "creating";
  return { record: begun ? { ...next, state: "booting" } : next, effects: [] };
}

function stepCreateFailed(record: SandboxRecord, error: WireError): Step {
  // It may have made something before it failed.
  if (isEnding(record.state) || record.state === "gone") return somethingAppeared(record);
  // The daemon has spoken, so the sandbox is there, whatever the provider's call says.
  if (isHeld(record.state)) return stay(record);
  return endWith(record, { reason: error.reason ?? error.code, event: "failed", error });
}

function stepCreateMoved(record: SandboxRecord, provider: string): Step {
  // Ended meanwhile: there is nothing to remove, which the removal that is under way finds out.
  if (record.state !== "intended" && record.state !== "creating") return stay(record);
  // Durable before the create, so that whoever recovers asks the right one.
  return {
    record: { ...record, provider, state: "intended" },
    effects: [{ type: "write" }, { type: "create" }],
  };
}

function stepEnrol(record: SandboxRecord, event: EventOf<"enrol">, now: number): Step {
  const lost = new SandboxLostError("the sandbox has ended", {
    sandbox: record.sandbox,
    reason: record.end?.reason ?? "released",
  });
  if (isEnding(record.state) || record.state === "gone") {
    return { record, effects: [refuse(event.reply, lost.toWire())] };
  }
  const enrolled = answer(event.reply, { type: "enrolled", publicKey: event.publicKey });
  // The same daemon whose answer was lost: the same key gets the same answer, which is of use to that key alone.
  if (record.publicKey === event.publicKey && record.incarnation === event.incarnation) {
    return { record, effects: [enrolled] };
  }
  const tampered = record.publicKey !== undefined;
  if (tampered) {
    const { record: next, effects } = endWith(record, { reason: "tampered", event: "lost" });
    return { record: next, effects: [...effects, refuse(event.reply, tamperedError(record).toWire())] };
  }
  if (event.generation !== record.generation) {
    const stale = new LeaseLostError("this bootstrap is of another generation", { sandbox: record.sandbox });
    return { record, effects: [refuse(event.reply, stale.toWire())] };
  }
  const { publicKey, incarnation } = event;
  const next: SandboxRecord = { ...record, state: "booting", publicKey, incarnation, enrolledAt: now };
  // Durable before the answer: a pool that forgot it would take a second enrolment for the first.
  return { record: next, effects: [{ type: "write" }, enrolled] };
}

const tamperedError = (record: SandboxRecord): BootFailedError =>
  new BootFailedError("someone else used the sandbox's credential", {
    sandbox: record.sandbox,
    reason: "tampered",
  });

function stepReady(record: SandboxRecord, event: EventOf<"ready">, now: number, limits: Limits): Step {
  if (isEnding(record.state) || record.state === "gone") {
    const reason = record.end?.reason ?? "released";
    return { record, effects: [{ type: "control", verb: "release", reason }] };
  }
  // Its credential is bound to the sandbox, and a new life of the daemon would have had to enrol first.
  if (record.incarnation !== undefined && record.incarnation !== event.incarnation) {
    return endWith(record, { reason: "tampered", event: "lost" });
  }
  if (record.incarnation === undefined || event.generation > record.generation) return stay(record);
  // It did not hear of its grant yet, or the word was lost.
  if (isHeld(record.state)) return { record, effects: [{ type: "control", verb: "grant" }] };
  return grant(record, now, limits);
}

function grant(record: SandboxRecord, now: number, limits: Limits): Step {
  const next: SandboxRecord = {
    ...record,
    state: "granted",
    generation: record.generation + 1,
    readyAt: now,
    confirmBy: now + limits.confirmMs,
    spec: undefined,
  };
  const effects: Effect[] = [{ type: "write" }, { type: "control", verb: "grant" }];
  for (const reply of record.replies ?? []) effects.push(answer(reply, { type: "grant" }));
  effects.push({ type: "event", what: "granted" });
  return { record: next, effects };
}

function stepAttach(record: SandboxRecord, event: EventOf<"attach">, now: number, limits: Limits): Step {
  const { reply } = event;
  if (event.digest !== record.digest) {
    const error = new ConflictError(`acquire ${record.lease} was sent before with other content`, {
      field: "id",
    });
    return { record, effects: [refuse(reply, error.toWire())] };
  }
  const replies = withReply(record.replies, reply);
  if (isPending(record.state)) return { record: { ...record, replies }, effects: [] };
  if (record.state === "granted") {
    const next = { ...record, replies, confirmBy: now + limits.confirmMs };
    return { record: next, effects: [answer(reply, { type: "grant" })] };
  }
  if (record.state === "leased") return { record, effects: [answer(reply, { type: "grant" })] };
  return { record, effects: [refuse(reply, record.end?.error ?? lostError(record).toWire())] };
}

const lostError = (record: SandboxRecord): SandboxLostError =>
  new SandboxLostError(`the sandbox has ended: ${record.end?.reason ?? "released"}`, {
    sandbox: record.sandbox,
    reason: record.end?.reason ?? "released",
  });

function stepConfirm(record: SandboxRecord, event: EventOf<"confirm">): Step {
  const { reply } = event;
  if (isEnding(record.state) || record.state === "gone") {
    return { record, effects: [refuse(reply, lostError(record).toWire())] };
  }
  if (!isHeld(record.state) || event.generation !== record.generation) {
    const error = new LeaseLostError("no such grant: it is of another generation", {
      sandbox: record.sandbox,
    });
    return { record, effects: [refuse(reply, error.toWire())] };
  }
  const confirmed = answer(reply, { type: "confirmed" });
  if (record.state === "leased") return { record, effects: [confirmed] };
  const next: SandboxRecord = { ...record, state: "leased", confirmBy: undefined, replies: undefined };
  return { record: next, effects: [{ type: "write" }, confirmed, { type: "event", what: "leased" }] };
}

function stepProviderFailed(record: SandboxRecord, event: EventOf<"provider_failed">): Step {
  if (isHeld(record.state)) return endWith(record, { reason: "daemon_died", event: "lost" });
  const { code, reason, message } = event;
  // Rebuilt through its class, so that `retryable` is the class's.
  const error = fromWire({ code, message, reason, sandbox: record.sandbox, retryable: false }).toWire();
  return endWith(record, { reason, event: "failed", error });
}

function stepProviderLost(record: SandboxRecord, event: EventOf<"provider_lost">): Step {
  if (isHeld(record.state)) return endWith(record, { reason: event.reason, event: "lost" });
  const reason = event.reason === "daemon_died" ? "exited" : event.reason;
  const error = new BootFailedError(event.message, { sandbox: record.sandbox, reason });
  return endWith(record, { reason, event: "failed", error: error.toWire() });
}
