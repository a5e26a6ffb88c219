// An acquire that waits for its turn, and the record that its sandbox begins with.
import * as v from "valibot";
import { AcquireRequest, newSandboxId } from "../../broker/contract/index.ts";
import type { PoolLimits } from "../config.ts";
import { type ReplyTo, type SandboxRecord, VOLATILE } from "../lifecycle/record.ts";
import type { LiveRun } from "./runs.ts";
import type { Able, KnownSpec } from "./specs.ts";

/** The spec is checked apart, once for all acquires that carry the same. */
export const Head = v.omit(AcquireRequest, ["spec"]);
/** With what a person left out. */
export type Head = v.InferOutput<typeof Head> & { id: string; run: string };

/** An acquire that has no sandbox yet. */
export interface Waiting {
  readonly tenant: string;
  readonly run: string;
  readonly id: string;
  readonly digest: string;
  readonly head: Head;
  readonly known: KnownSpec;
  readonly live: LiveRun;
  readonly requestedAt: number;
  replies: ReplyTo[];
  /** The providers that can; undefined while they are asked. */
  able: Able | undefined;
}

/** The record of a sandbox that is about to be made at `now` (ms since the epoch). */
export function intentOf(
  waiting: Waiting,
  provider: string,
  warnings: string[] | undefined,
  limits: PoolLimits,
  now: number,
): SandboxRecord {
  const { head, known } = waiting;
  return {
    version: 1,
    sandbox: newSandboxId(),
    tenant: waiting.tenant,
    // The one text for all of a run, instead of one from each request.
    run: waiting.live.record.run,
    lease: waiting.id,
    digest: waiting.digest,
    provider,
    image: known.spec.image,
    spec: known.spec,
    warnings,
    state: "intended",
    generation: 1,
    leaseMs: head.lease_ms,
    requestedAt: waiting.requestedAt,
    intendedAt: now,
    callerDeadlineAt: waiting.requestedAt + head.timeout_ms,
    bootDeadlineAt: now + limits.bootTimeoutMs,
    dieAt: now + Math.min(head.max_life_ms, limits.maxLifeMs),
    replies: waiting.replies,
    ...VOLATILE,
  };
}
