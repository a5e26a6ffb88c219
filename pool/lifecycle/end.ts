// How a sandbox's life turns towards its end.
import {
  BootFailedError,
  CanceledError,
  SandboxLostError,
  type WireError,
} from "../../broker/contract/index.ts";
import type { Effect } from "./events.ts";
import { type End, isEnding, NO_DOUBT, type SandboxRecord } from "./record.ts";

export interface Step {
  record: SandboxRecord;
  effects: readonly Effect[];
}

const NOTHING: readonly Effect[] = [];
export const stay = (record: SandboxRecord): Step => ({ record, effects: NOTHING });

/** Ends a sandbox that lives: the duty is written first, then daemon, caller and listeners hear of it, and the
 * provider removes it. A sandbox that is ending already keeps its first reason. */
export function endWith(record: SandboxRecord, end: End): Step {
  if (isEnding(record.state) || record.state === "gone") return stay(record);
  const error = end.error ?? (record.state === "leased" ? undefined : errorOf(record, end));
  const next: SandboxRecord = {
    ...record,
    state: end.event === "lost" ? "lost" : end.event === "failed" ? "failed" : "releasing",
    end: error === undefined ? end : { ...end, error },
    removal: "running",
    removeAttempts: 0,
    spec: undefined,
    confirmBy: undefined,
    replies: undefined,
    ...NO_DOUBT,
  };
  const effects: Effect[] = [{ type: "write" }];
  if (record.state === "intended" || record.state === "creating") effects.push({ type: "abort_create" });
  if (record.publicKey !== undefined) effects.push({ type: "control", verb: "release", reason: end.reason });
  // A granted caller was answered already.
  if (error !== undefined && record.state !== "granted") {
    for (const reply of record.replies ?? [])
      effects.push({ type: "answer", reply, answer: { type: "error", error } });
  }
  effects.push({ type: "event", what: end.event, reason: end.reason }, { type: "remove" });
  return { record: next, effects };
}

/** What an acquire that asks again hears, where the reason brings no error of its own. */
function errorOf(record: SandboxRecord, end: End): WireError {
  const detail = { sandbox: record.sandbox, reason: end.reason };
  if (record.state === "granted") {
    return new SandboxLostError(
      `the sandbox has ended before it was confirmed: ${end.reason}`,
      detail,
    ).toWire();
  }
  if (end.event === "released") return new CanceledError("the acquire was released", detail).toWire();
  return new BootFailedError(`the sandbox ended before it was ready: ${end.reason}`, detail).toWire();
}
