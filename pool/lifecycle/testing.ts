// For tests: a record as an acquire begins it, and repeatable random numbers.
import type { Limits } from "./events.ts";
import { type SandboxRecord, VOLATILE } from "./record.ts";

export const LIMITS: Limits = {
  confirmMs: 10_000,
  disconnectGraceMs: 3_000,
  secondConnectionGraceMs: 2_000,
  muteConnectionMs: 15_000,
  recoveryGraceMs: 15_000,
  removeRetryMinMs: 100,
  removeRetryMaxMs: 5_000,
};

export const T0 = 1_000_000;
export const REPLY = { subject: "rep.v1.default.pool.alice.t1", encoding: "msgpack" } as const;

export function intended(over: Partial<SandboxRecord> = {}): SandboxRecord {
  return {
    version: 1,
    sandbox: "sb-0000000000001",
    tenant: "default",
    run: "r1",
    lease: "01920c6a-7b1e-7c3d-8e4f-5a6b7c8d9e0f",
    digest: "d1",
    provider: "double",
    image: "host",
    spec: { image: "host" },
    state: "intended",
    generation: 1,
    leaseMs: 60_000,
    requestedAt: T0,
    intendedAt: T0,
    callerDeadlineAt: T0 + 300_000,
    bootDeadlineAt: T0 + 60_000,
    dieAt: T0 + 3_600_000,
    replies: [REPLY],
    ...VOLATILE,
    ...over,
  };
}

/** mulberry32: the same numbers for the same seed. */
export function randomOf(seed: number): { below(n: number): number; chance(p: number): boolean } {
  let a = seed;
  const next = (): number => {
    a = (a + 0x6d2b79f5) | 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
  return { below: (n) => Math.floor(next() * n), chance: (p) => next() < p };
}
