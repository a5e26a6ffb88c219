// Messages between users and the pool (`pool.v1.<tenant>.<verb>`), all requests with an answer.
import * as v from "valibot";
import { CommandId, Id } from "../ids.ts";
import { milliseconds, RunId, Version, whole } from "./common.ts";
import { SandboxSpec } from "./spec.ts";

/** Lease time: how long a run lives on without a renewal. */
export const MIN_LEASE_MS = 1_000;
export const DEFAULT_LEASE_MS = 60_000;
export const MAX_LEASE_MS = 24 * 3600 * 1000;

const LeaseMs = whole("How long the run lives without renewal, ms", MAX_LEASE_MS, MIN_LEASE_MS);

/** `acquire`: one sandbox. Sent again with the same id it attaches to the first try; with other content under the
 * same id it is a conflict. Answered once, when the sandbox is ready or has failed: clients ask again, with the
 * same id, when no answer came for a while or the connection was lost. Clients always name id and run; a person with
 * the nats CLI may leave them out. */
export const AcquireRequest = v.object({
  version: Version,
  id: v.optional(
    v.pipe(CommandId, v.description("At most one sandbox by this id; without one the pool makes one")),
  ),
  run: v.optional(v.pipe(RunId, v.description("Default: a run with the user's name"))),
  spec: SandboxSpec,
  timeout_ms: v.optional(milliseconds("How long the caller waits for it", 1), 300_000),
  lease_ms: v.optional(LeaseMs, DEFAULT_LEASE_MS),
  renews: v.optional(
    v.pipe(
      v.boolean(),
      v.description(
        "The caller renews the run from now on: when it stops, the acquire ends with the lease, also while it waits",
      ),
    ),
    false,
  ),
  max_life_ms: v.optional(milliseconds("Ended after this whatever is renewed", 1000), 24 * 3600 * 1000),
});
export type AcquireRequest = v.InferOutput<typeof AcquireRequest>;

/** Where the time went, so that "why was this one slow" has an answer; all since the pool got the request. */
export const Timeline = v.object({
  queued_ms: v.pipe(v.number(), v.description("Until the create was begun")),
  created_ms: v.pipe(v.number(), v.description("Until the provider had created it")),
  enrolled_ms: v.pipe(v.number(), v.description("Until the daemon enrolled")),
  ready_ms: v.pipe(v.number(), v.description("Until it could execute")),
});
export type Timeline = v.InferOutput<typeof Timeline>;

export const Grant = v.object({
  sandbox: Id,
  run: RunId,
  lease: CommandId,
  generation: whole("Fences this grant against older ones", undefined, 1),
  incarnation: v.string(),
  lease_ms: LeaseMs,
  confirm_ms: milliseconds("Confirm within this, or the pool takes the sandbox back"),
  provider: Id,
  timeline: Timeline,
  warnings: v.optional(
    v.pipe(
      v.array(v.string()),
      v.description(
        "What it was to have and has not, in words, such as a limit that this machine cannot hold",
      ),
    ),
    [],
  ),
});
export type Grant = v.InferOutput<typeof Grant>;

/** `confirm`: the caller has the grant. An unconfirmed grant is taken back. */
export const ConfirmRequest = v.object({
  version: Version,
  sandbox: Id,
  generation: whole("The grant's", undefined, 1),
});
export const ConfirmAnswer = v.object({ sandbox: Id });

/** `renew`: a run and with it all its sandboxes, one message for all. A run unknown to the pool is `not_found`. */
export const RenewRequest = v.object({ version: Version, run: RunId, lease_ms: v.optional(LeaseMs) });
export const RenewAnswer = v.object({ run: RunId, lease_ms: LeaseMs, sandboxes: whole("Live in the run") });

/** `release`: exactly one of sandbox, lease (also one still being acquired) or run. Answered when all of it is
 * gone and verified so (or `wait: false`: when the pool has taken the duty). Releasing what is gone succeeds. An acquire that
 * comes after its release, which came by another connection, is canceled. */
export const ReleaseRequest = v.pipe(
  v.object({
    version: Version,
    sandbox: v.optional(Id),
    generation: v.optional(whole("Only if the sandbox still has this one", undefined, 1)),
    lease: v.optional(
      v.pipe(CommandId, v.description("An acquire's id; one that comes after its release is canceled")),
    ),
    run: v.optional(RunId),
    wait: v.optional(v.boolean(), true),
    id: v.optional(
      v.pipe(
        CommandId,
        v.description(
          "Asked again under the same one, it is counted as the first time; of something else that is a conflict",
        ),
      ),
    ),
  }),
  v.check(
    (r) => [r.sandbox, r.lease, r.run].filter((x) => x !== undefined).length === 1,
    "name exactly one of sandbox, lease and run",
  ),
);
export const ReleaseAnswer = v.object({
  released: whole("Sandboxes that this call ended, or one before it that is under way yet"),
  known: v.optional(
    whole("Sandboxes that it stands for, also one that has ended; that is remembered for a while"),
  ),
});

/** The states of a sandbox, in the order of a life that goes well; `lost` and `failed` are the other ways out. */
export const STATES = [
  "intended",
  "creating",
  "booting",
  "granted",
  "leased",
  "releasing",
  "gone",
  "lost",
  "failed",
] as const;
export const State = v.picklist(STATES);
export type State = v.InferOutput<typeof State>;

export const SandboxView = v.object({
  sandbox: Id,
  state: State,
  run: v.optional(RunId),
  lease: v.optional(v.string()),
  generation: whole("Current"),
  image: v.string(),
  provider: Id,
  age_ms: whole("Since the intent, ms"),
  expires_in_ms: v.optional(
    v.pipe(v.number(), v.description("Until the run's lease lapses, ms; negative: being reclaimed")),
  ),
  reason: v.optional(v.string()),
});
export type SandboxView = v.InferOutput<typeof SandboxView>;

/** `list`: the tenant's sandboxes, by id, in pages; or one of them. */
export const ListRequest = v.object({
  version: Version,
  run: v.optional(RunId),
  sandbox: v.optional(
    v.pipe(Id, v.description("This one only, also where it has ended; that is remembered for a while")),
  ),
  after: v.optional(Id),
  limit: v.optional(whole("At most this many", 1000, 1), 1000),
});
export const ListAnswer = v.object({
  sandboxes: v.array(SandboxView),
  next: v.optional(v.pipe(Id, v.description("Pass as `after` for the next page"))),
});

/** `status`: the pool in figures. */
export const StatusRequest = v.object({ version: Version });
export const StatusAnswer = v.object({
  pool: v.string(),
  uptime_ms: whole("ms"),
  draining: v.boolean(),
  queued: whole("Acquires waiting for a create"),
  states: v.record(v.string(), whole("Sandboxes in that state")),
  runs: whole("Live runs"),
  providers: v.array(v.object({ name: Id, sandboxes: whole("That it has now, ours or orphaned") })),
});

/** `drain`: no new acquires; `off` ends it. Only an operator may: the server refuses it of everyone else. */
export const DrainRequest = v.object({
  version: Version,
  on: v.optional(v.boolean(), true),
  release_all: v.optional(v.boolean(), false),
});
export const DrainAnswer = v.object({ draining: v.boolean(), remaining: whole("Sandboxes still there") });
