// Between the pool and a daemon: enrolment, readiness, and the pool's words.
import * as v from "valibot";
import { CommandId, Id } from "../ids.ts";
import { milliseconds, Version, whole } from "./common.ts";

/** What a daemon is started with, in the environment variable SANDMESH_BOOTSTRAP (JSON) or a file. The credential
 * can enrol this one sandbox once, and nothing else. */
export const Bootstrap = v.object({
  version: Version,
  urls: v.pipe(v.array(v.string()), v.minLength(1)),
  ca: v.optional(v.pipe(v.string(), v.description("PEM of the CA, where the server speaks TLS"))),
  relay: v.optional(
    v.pipe(v.string(), v.description("Unix socket that leads to NATS, for its own network namespace")),
  ),
  tenant: Id,
  sandbox: Id,
  generation: whole("Of the intent", undefined, 1),
  jwt: v.string(),
  seed: v.string(),
  boot_timeout_ms: milliseconds("Give up and exit when not enrolled by then", 1),
  image: v.optional(v.string()),
  env: v.optional(v.record(v.string(), v.string())),
  cwd: v.optional(v.string()),
  entrypoint: v.optional(
    v.pipe(
      v.array(v.string()),
      v.minLength(1),
      v.description("The image's own program, which the daemon starts beside itself"),
    ),
  ),
  isolation: v.optional(
    v.pipe(v.array(v.string()), v.description("What is not isolated, in words, for `info`")),
  ),
});
export type Bootstrap = v.InferOutput<typeof Bootstrap>;

/** `enr.v1.<tenant>.<sandbox>`, once. */
export const EnrolRequest = v.object({
  version: Version,
  generation: whole("Of the bootstrap", undefined, 1),
  incarnation: v.pipe(v.string(), v.minLength(8), v.maxLength(64)),
  public_key: v.pipe(v.string(), v.regex(/^U[A-Z2-7]{55}$/, "must be a user's public nkey")),
});
export const EnrolAnswer = v.object({
  jwt: v.string(),
  dead_man_ms: milliseconds("End the sandbox when no word of the pool came for this long"),
});
export type EnrolAnswer = v.InferOutput<typeof EnrolAnswer>;

/** `evt.v1.<tenant>.sbx.<sandbox>.ready`: subscribed and flushed. Repeated until the pool's first word. */
export const Ready = v.object({
  version: Version,
  generation: whole("Of the bootstrap, or of the last grant", undefined, 1),
  incarnation: v.string(),
  boot_ms: v.pipe(v.number(), v.description("From the daemon's exec to this message, ms")),
});
export type Ready = v.InferOutput<typeof Ready>;

/** `ctl…welcome`: the pool knows this daemon; ends the repetition of `ready`. Not granted to anyone yet. */
export const Welcome = v.object({
  version: Version,
  generation: whole("", undefined, 1),
  dead_man_ms: milliseconds(""),
});
/** `ctl…grant`: from now on the sandbox belongs to this lease; older generations are refused. */
export const GrantControl = v.object({
  version: Version,
  lease: CommandId,
  generation: whole("", undefined, 1),
  dead_man_ms: milliseconds("From the arrival of this message"),
});
/** `ctl…renew`: sets the dead man's time anew. */
export const RenewControl = v.object({
  version: Version,
  generation: whole("", undefined, 1),
  dead_man_ms: milliseconds(""),
});
/** `ctl…release`: end all processes and exit. */
export const ReleaseControl = v.object({
  version: Version,
  generation: whole("", undefined, 1),
  reason: v.string(),
});
/** `ctl…credential`: a new credential for the daemon's key, before the old one ends. */
export const CredentialControl = v.object({
  version: Version,
  generation: whole("", undefined, 1),
  jwt: v.string(),
});

/** What happened, on `evt.v1.<tenant>.{pool,run.<run>}.<what>`; `what` says which. */
export const EVENTS = [
  "queued",
  "creating",
  "granted",
  "leased",
  "released",
  "expired",
  "lost",
  "failed",
  "draining",
] as const;
export const PoolEvent = v.object({
  what: v.picklist(EVENTS),
  at: v.pipe(v.string(), v.isoTimestamp()),
  run: v.optional(Id),
  sandbox: v.optional(Id),
  lease: v.optional(v.string()),
  reason: v.optional(v.string()),
});
export type PoolEvent = v.InferOutput<typeof PoolEvent>;
