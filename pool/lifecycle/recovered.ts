// What a pool that has just started makes of a record it finds.
import { BootFailedError } from "../../broker/contract/index.ts";
import { endWith, type Step, stay } from "./end.ts";
import type { Effect, FoundAgain, Limits } from "./events.ts";
import { isEnding, isPending, NO_DOUBT, type SandboxRecord } from "./record.ts";
import { remove, somethingAppeared } from "./removal.ts";

export function stepRecovered(record: SandboxRecord, listed: FoundAgain, now: number, limits: Limits): Step {
  if (isEnding(record.state)) return remove(record);
  if (record.state === "gone") {
    return listed === undefined || listed === "unknown" ? stay(record) : somethingAppeared(record);
  }
  if (isPending(record.state)) return recoverPending(record, listed, now, limits);
  if (listed === undefined) return endWith(record, { reason: "deleted", event: "lost" });
  const uid = listed === "unknown" ? record.uid : listed.uid;
  const found = { ...record, uid, createdAt: record.createdAt ?? now };
  if (record.state === "leased") return { record: found, effects: [{ type: "control", verb: "renew" }] };
  // The old pool may have died before it could tell anyone.
  return tellAgain(found, now, limits);
}

/** Daemon and caller of a grant are told (again), and the caller gets its time to confirm. */
function tellAgain(record: SandboxRecord, now: number, limits: Limits): Step {
  const effects: Effect[] = [{ type: "control", verb: "grant" }];
  for (const reply of record.replies ?? [])
    effects.push({ type: "answer", reply, answer: { type: "grant" } });
  return { record: { ...record, confirmBy: now + limits.confirmMs }, effects };
}

/** While the server was away nobody could hear or say anything, and its word on who was connected is void. */
export function stepOutageOver(before: SandboxRecord, now: number, limits: Limits): Step {
  if (isEnding(before.state) || before.state === "gone") return stay(before);
  const record: SandboxRecord = { ...before, connections: [], ...NO_DOUBT };
  if (record.state === "leased") return { record, effects: [{ type: "control", verb: "renew" }] };
  if (record.state === "granted") return tellAgain(record, now, limits);
  const bootDeadlineAt = Math.max(record.bootDeadlineAt, now + limits.recoveryGraceMs);
  return { record: { ...record, bootDeadlineAt }, effects: [] };
}

function recoverPending(record: SandboxRecord, listed: FoundAgain, now: number, limits: Limits): Step {
  // Its daemon could not enrol or say ready while no pool was there.
  const bootDeadlineAt = Math.max(record.bootDeadlineAt, now + limits.recoveryGraceMs);
  const next = { ...record, bootDeadlineAt };
  if (listed === "unknown") {
    // Where it enrolled it is there, or was; else the create is sent (again), and waits for the provider's return.
    if (record.publicKey === undefined)
      return { record: { ...next, state: "intended" }, effects: [{ type: "create" }] };
    return { record: { ...next, createdAt: record.createdAt ?? now, state: "booting" }, effects: [] };
  }
  if (listed?.failed !== undefined) {
    const { sandbox } = record;
    const error = new BootFailedError(listed.failed, { sandbox, reason: "exited" });
    return endWith(next, { reason: "exited", event: "failed", error: error.toWire() });
  }
  if (listed !== undefined) {
    return {
      record: { ...next, uid: listed.uid, createdAt: record.createdAt ?? now, state: "booting" },
      effects: [],
    };
  }
  // It enrolled, so it was there, and is not any more.
  if (record.publicKey !== undefined) return endWith(next, { reason: "exited", event: "failed" });
  // Nobody knows whether the create was sent: it is idempotent by name, so send it (again).
  return { record: { ...next, state: "intended" }, effects: [{ type: "create" }] };
}
