// What the pool knows of one sandbox, and which part of it is durable.
import * as v from "valibot";
import { decode, encode, SandboxSpec, State, type WireError } from "../../broker/contract/index.ts";
import type { Connection } from "../../broker/server/connections.ts";

type WithUndefined<T> = { [K in keyof T]: undefined extends T[K] ? T[K] | undefined : T[K] };

/** Where an answer goes, and how it is encoded. */
export const ReplyTo = v.object({ subject: v.string(), encoding: v.picklist(["msgpack", "json"]) });
export type ReplyTo = v.InferOutput<typeof ReplyTo>;

const Ms = v.pipe(v.number(), v.minValue(0));
const WireFault = v.custom<WireError>(
  (value) =>
    typeof value === "object" &&
    value !== null &&
    "code" in value &&
    "message" in value &&
    "retryable" in value,
  "must be an error as it stands in an answer",
);

/** Why a sandbox left the path that goes well. `event` is what the run's listeners are told. */
const End = v.object({
  reason: v.string(),
  event: v.picklist(["released", "expired", "lost", "failed"]),
  /** What the caller of its acquire is told, where it was not granted yet. */
  error: v.optional(WireFault),
});
export type End = WithUndefined<v.InferOutput<typeof End>>;

/** The durable fields. Times are milliseconds since the epoch, since they outlive the process. */
const Durable = v.object({
  version: v.literal(1),
  sandbox: v.string(),
  tenant: v.string(),
  run: v.string(),
  lease: v.string(),
  /** Tells whether another acquire under this id has the same content. */
  digest: v.string(),
  provider: v.string(),
  image: v.string(),
  /** Until it is ready; nobody needs it afterwards. */
  spec: v.optional(SandboxSpec),
  /** For the grant: what the provider cannot hold of the spec. */
  warnings: v.optional(v.array(v.string())),
  state: State,
  generation: v.pipe(v.number(), v.integer(), v.minValue(1)),
  leaseMs: Ms,
  requestedAt: Ms,
  intendedAt: Ms,
  callerDeadlineAt: Ms,
  bootDeadlineAt: Ms,
  dieAt: Ms,
  confirmBy: v.optional(Ms),
  /** Of the callers that have not been answered yet: all that asked under this id. */
  replies: v.optional(v.array(ReplyTo)),
  uid: v.optional(v.string()),
  createdAt: v.optional(Ms),
  publicKey: v.optional(v.string()),
  incarnation: v.optional(v.string()),
  enrolledAt: v.optional(Ms),
  readyAt: v.optional(Ms),
  end: v.optional(End),
});

/** `waiting`: a removal failed and is tried again at `retryAt`. `again`: something may have come into being while
 * one was under way, so that one more is due after it. */
export type Removal = "none" | "running" | "again" | "waiting";

/** What is not worth a write, since a new pool finds it out anew. */
interface Volatile {
  removal: Removal;
  removeAttempts: number;
  retryAt?: number | undefined;
  /** Live connections with the sandbox's own credential as far as was told, oldest first; each change makes it anew. */
  connections: readonly Connection[];
  /** The youngest that has ended, while it is not known how it was. */
  left?: Connection | undefined;
  /** Since when the servers are asked whether there is another's beside its own. */
  doubtSince?: number | undefined;
  /** None, or two on one key, or one that outlived a younger: when the servers are asked about it. */
  lookAt?: number | undefined;
}

export type SandboxRecord = WithUndefined<Omit<v.InferOutput<typeof Durable>, "end">> &
  Volatile & { end?: End | undefined };

/** Of its connections nothing is to be found out. */
export const NO_DOUBT = { left: undefined, doubtSince: undefined, lookAt: undefined };

const NO_CONNECTIONS: readonly Connection[] = [];
export const VOLATILE: Volatile = { removal: "none", removeAttempts: 0, connections: NO_CONNECTIONS };

/** Addresses that an acquire's answer goes to. Who asks again because of silence gives a new one each time, and listens
 * at the last only; several that ask at once are all answered. */
const MAX_REPLIES = 16;

/** With one address more; of too many the oldest goes. */
export const withReply = (replies: readonly ReplyTo[] | undefined, reply: ReplyTo): ReplyTo[] =>
  [...(replies ?? []), reply].slice(-MAX_REPLIES);

/** Those of `before` that `after` has let go of: they will not be answered. */
export const letGo = (before: readonly ReplyTo[] = [], after: readonly ReplyTo[] = []): ReplyTo[] =>
  before.filter(({ subject }) => !after.some((each) => each.subject === subject));

/** The names of the fields that a write holds. */
const DURABLE_KEYS = Object.keys(Durable.entries) as readonly (keyof typeof Durable.entries)[];

/** The bytes of a record's durable part. */
export function encodeRecord(record: SandboxRecord): Uint8Array {
  const durable: Record<string, unknown> = {};
  for (const key of DURABLE_KEYS) {
    const value = record[key];
    if (value !== undefined) durable[key] = value;
  }
  return encode(durable);
}

/** The record that a pool begins with after a start. Throws InvalidRequestError or ValiError where the bytes are no record. */
export function decodeRecord(bytes: Uint8Array): SandboxRecord {
  return { ...v.parse(Durable, decode(bytes)), ...VOLATILE };
}

export const isEnding = (state: State): boolean =>
  state === "releasing" || state === "lost" || state === "failed";

/** Not yet given to anyone. */
export const isPending = (state: State): boolean =>
  state === "intended" || state === "creating" || state === "booting";

export const isHeld = (state: State): boolean => state === "granted" || state === "leased";
