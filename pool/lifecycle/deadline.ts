// The deadlines of a sandbox: when the next one is, and what follows when it has passed.
import { BootFailedError } from "../../broker/contract/index.ts";
import { endWith, type Step, stay } from "./end.ts";
import { isEnding, isPending, type SandboxRecord } from "./record.ts";
import { remove } from "./removal.ts";
import { acquireTimeout } from "./timeout.ts";

/** When this record wants to be looked at again (ms since the epoch); Infinity where nothing is due. */
export function dueAt(record: SandboxRecord): number {
  if (record.state === "gone") return Number.POSITIVE_INFINITY;
  if (isEnding(record.state)) {
    return record.removal === "waiting" && record.retryAt !== undefined
      ? record.retryAt
      : Number.POSITIVE_INFINITY;
  }
  const life = Math.min(record.dieAt, record.lookAt ?? Number.POSITIVE_INFINITY);
  if (isPending(record.state)) return Math.min(life, record.callerDeadlineAt, record.bootDeadlineAt);
  return Math.min(life, record.confirmBy ?? Number.POSITIVE_INFINITY);
}

/** What has passed at `now`, worst first. */
export function stepDeadline(record: SandboxRecord, now: number): Step {
  if (dueAt(record) > now) return stay(record);
  if (isEnding(record.state)) return remove(record);
  if (record.dieAt <= now) return endWith(record, { reason: "expired", event: "expired" });
  if (isPending(record.state)) return stepPendingDeadline(record, now);
  if (record.confirmBy !== undefined && record.confirmBy <= now) {
    return endWith(record, { reason: "unconfirmed", event: "expired" });
  }
  return look(record);
}

function stepPendingDeadline(record: SandboxRecord, now: number): Step {
  const { sandbox } = record;
  if (record.callerDeadlineAt <= now) {
    const error = acquireTimeout(record.state === "booting" ? "booting" : "creating", sandbox);
    return endWith(record, { reason: "acquire_timeout", event: "failed", error: error.toWire() });
  }
  if (record.bootDeadlineAt <= now) {
    const error = new BootFailedError(
      record.state === "booting"
        ? "its daemon did not become ready in time"
        : "the provider did not create it in time",
      { sandbox, reason: "boot_timeout" },
    );
    return endWith(record, { reason: "boot_timeout", event: "failed", error: error.toWire() });
  }
  return look(record);
}

/** Nothing of it is judged before the servers have answered. */
const look = (record: SandboxRecord): Step => ({
  record: { ...record, lookAt: undefined },
  effects: [{ type: "look" }],
});
