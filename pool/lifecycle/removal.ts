// The duty to remove: it is tried until the provider has verified it, and taken up again for what appears late.
import { type Step, stay } from "./end.ts";
import type { Limits } from "./events.ts";
import { isEnding, type SandboxRecord, VOLATILE } from "./record.ts";

/** The provider verified that nothing is left. */
export function stepRemoved(record: SandboxRecord): Step {
  if (!isEnding(record.state)) return stay(record);
  if (record.removal === "again") return remove(record);
  // What is remembered for those who ask again, by the ten thousand: nothing that only the living need.
  const next: SandboxRecord = {
    ...record,
    ...VOLATILE,
    state: "gone",
    retryAt: undefined,
    uid: undefined,
    publicKey: undefined,
    incarnation: undefined,
    warnings: undefined,
  };
  return { record: next, effects: [{ type: "write" }, { type: "gone" }] };
}

/** Tried again for ever, each time after twice the wait, up to a bound: a duty is never dropped. */
export function stepRemoveFailed(record: SandboxRecord, now: number, limits: Limits): Step {
  if (!isEnding(record.state)) return stay(record);
  const { removeRetryMinMs: least, removeRetryMaxMs: most } = limits;
  const wait = Math.min(most, least * 2 ** Math.min(record.removeAttempts, 20));
  return {
    record: {
      ...record,
      removal: "waiting",
      removeAttempts: record.removeAttempts + 1,
      retryAt: now + wait,
    },
    effects: [],
  };
}

/** Something came into being (a late create) of a sandbox that is ending or gone: remove it (again). */
export function somethingAppeared(record: SandboxRecord): Step {
  if (record.state === "gone") {
    const next: SandboxRecord = { ...record, state: "releasing", removal: "running", removeAttempts: 0 };
    return { record: next, effects: [{ type: "write" }, { type: "remove" }] };
  }
  if (record.removal === "waiting") return remove(record);
  return { record: { ...record, removal: "again" }, effects: [] };
}

export function remove(record: SandboxRecord): Step {
  return { record: { ...record, removal: "running", retryAt: undefined }, effects: [{ type: "remove" }] };
}
