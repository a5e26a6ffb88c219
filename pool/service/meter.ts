// What the pool tells whoever measures it (pool/http makes Prometheus metrics of it): how long each step of a sandbox's
// life took, and what the pacing decided.
import { isEnding, type SandboxRecord } from "../lifecycle/record.ts";

/** From the step before it, in their order. `enrolled` counts from the intent where the daemon came before the
 * provider's answer. */
const STEPS = ["queued", "created", "enrolled", "granted", "confirmed", "removed"] as const;
export type Step = (typeof STEPS)[number];

const PACE_DECISIONS = ["go", "booting", "rate"] as const;
export type PaceDecision = (typeof PACE_DECISIONS)[number];

export interface Meter {
  step(step: Step, ms: number): void;
  /** From the request to the grant, ms. */
  acquired(ms: number): void;
  paced(decision: PaceDecision): void;
}

export const NO_METER: Meter = { step: () => {}, acquired: () => {}, paced: () => {} };

/** Tells `meter` which steps lie between two records of one sandbox. `endedAt`: since when the later one is ending. */
export function measureSteps(
  before: SandboxRecord,
  after: SandboxRecord,
  now: number,
  endedAt: number | undefined,
  meter: Meter,
): void {
  const { intendedAt, createdAt, enrolledAt, readyAt } = after;
  if (before.createdAt === undefined && createdAt !== undefined)
    meter.step("created", createdAt - intendedAt);
  if (before.enrolledAt === undefined && enrolledAt !== undefined) {
    meter.step("enrolled", enrolledAt - (createdAt ?? intendedAt));
  }
  if (before.readyAt === undefined && readyAt !== undefined) {
    meter.step("granted", readyAt - (enrolledAt ?? intendedAt));
    meter.acquired(readyAt - after.requestedAt);
  }
  if (before.state === after.state) return;
  if (after.state === "leased" && readyAt !== undefined) meter.step("confirmed", now - readyAt);
  if (after.state === "gone" && isEnding(before.state) && endedAt !== undefined) {
    meter.step("removed", now - endedAt);
  }
}
