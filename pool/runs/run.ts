// A run's lease: what is renewed, and what all its sandboxes live by. Pure, with the clock passed in.
import * as v from "valibot";
import { decode, encode } from "../../broker/contract/index.ts";

const Ms = v.pipe(v.number(), v.minValue(0));

/** Durable; times in ms since the epoch. */
export const RunRecord = v.object({
  version: v.literal(1),
  tenant: v.string(),
  run: v.string(),
  leaseMs: Ms,
  expiresAt: Ms,
  /** Its client renews, or has said that it will: then it is held to that also while it still waits for its first sandbox. */
  renewed: v.boolean(),
});
export type RunRecord = v.InferOutput<typeof RunRecord>;

export const encodeRun = (run: RunRecord): Uint8Array => encode(run);
export const decodeRun = (bytes: Uint8Array): RunRecord => v.parse(RunRecord, decode(bytes));

export function newRun(
  tenant: string,
  run: string,
  leaseMs: number,
  now: number,
  renewed = false,
): RunRecord {
  return { version: 1, tenant, run, leaseMs, expiresAt: now + leaseMs, renewed };
}

/** A renewal sets the time anew, also to a shorter one: it is the client's word. */
export function renewRun(run: RunRecord, leaseMs: number | undefined, now: number): RunRecord {
  const length = leaseMs ?? run.leaseMs;
  return { ...run, leaseMs: length, expiresAt: now + length, renewed: true };
}

/** An acquire or a grant is a sign of life: it never shortens. The same object where nothing changes. */
export function touchRun(run: RunRecord, leaseMs: number, now: number, renews = false): RunRecord {
  const longer = now + leaseMs > run.expiresAt;
  const renewed = run.renewed || renews;
  if (longer) return { ...run, leaseMs, expiresAt: now + leaseMs, renewed };
  return renewed === run.renewed ? run : { ...run, renewed };
}

/** After an outage in which nobody could renew: at least `graceMs`, but never more than a whole lease, from now. */
export function graceRun(run: RunRecord, graceMs: number, now: number): RunRecord {
  const expiresAt = Math.max(run.expiresAt, now + Math.min(graceMs, run.leaseMs));
  return expiresAt === run.expiresAt ? run : { ...run, expiresAt };
}

/** Whether the run ends at `now`. A client that does not renew and holds nothing yet (a person's request with the
 * nats CLI) waits for its acquire's own time-out. */
export function hasLapsed(run: RunRecord, holdsAny: boolean, now: number): boolean {
  return run.expiresAt <= now && (holdsAny || run.renewed);
}
