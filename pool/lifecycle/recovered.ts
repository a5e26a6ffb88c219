// What a pool that has just started makes of a record it finds.
import { BootFailedError } from "../../broker/contract/index.ts";
import type { Step } from "./end.ts";
import { endWith, stay } from "./end.ts";
import type { Effect, Limits } from "./events.ts";
import { isEnding, isPending, type SandboxRecord } from "./record.ts";
import { remove, somethingAppeared } from "./removal.ts";

/** `listed` is what the provider has of it: undefined where nothing. */
export function stepRecovered(
  record: SandboxRecord,
  listed: { uid: string; failed: string | undefined } | undefined,
  now: number,
  limits: Limits,
): Step {
  if (isEnding(record.state)) return remove(record);
  if (record.state === "gone") return listed === undefined ? stay(record) : somethingAppeared(record);
  if (isPending(record.state)) return recoverPending(record, listed, now, limits);
  if (listed === undefined) return endWith(record, { reason: "deleted", event: "lost" });
  if (record.state === "leased") return { record, effects: [{ type: "control", verb: "renew" }] };
  // The old pool may have died before it could tell anyone, so both are told (again), and the caller gets his time.
  const effects: Effect[] = [{ type: "control", verb: "grant" }];
  if (record.reply !== undefined) {
    effects.push({ type: "answer", reply: record.reply, answer: { type: "grant" } });
  }
  return { record: { ...record, confirmBy: now + limits.confirmMs }, effects };
}

function recoverPending(
  record: SandboxRecord,
  listed: { uid: string; failed: string | undefined } | undefined,
  now: number,
  limits: Limits,
): Step {
  // Its daemon could not enrol or say ready while no pool was there.
  const bootDeadlineAt = Math.max(record.bootDeadlineAt, now + limits.recoveryGraceMs);
  const next = { ...record, bootDeadlineAt };
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
