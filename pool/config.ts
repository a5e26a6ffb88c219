// The pool's settings: one schema, each value with its unit, default and reason (`sandmesh config` prints them).
// A file (JSON) is read first, the environment goes over it: `SANDMESH_POOL_BOOT_TIMEOUT_MS` for `bootTimeoutMs`.
import * as v from "valibot";
import { Id, InvalidRequestError, wordsOf } from "../broker/contract/index.ts";
import { readBounded } from "../broker/credentials/bounded-file.ts";

/** A name or an address (IPv6 in brackets), and a port. */
export const LISTEN_ADDRESS = /^(\[[0-9a-fA-F:]+\]|[^:[\]\s]+):(\d{1,5})$/;

const HOUR_MS = 3600_000;

/** A whole number with its default, bounds and the reason for it. */
const count = (byDefault: number, min: number, max: number, why: string) =>
  v.optional(
    v.pipe(v.number(), v.integer(), v.minValue(min), v.maxValue(max), v.description(why)),
    byDefault,
  );
const ms = (byDefault: number, why: string, min = 1) =>
  count(byDefault, min, 30 * 24 * HOUR_MS, `ms. ${why}`);

export const PoolLimits = v.object({
  maxBooting: count(
    256,
    1,
    100_000,
    "Sandboxes starting at once (`sandmesh up`: 8 a processor); bursts break on starts, not on the rate",
  ),
  reservedBooting: count(
    16,
    0,
    10_000,
    "Of maxBooting, at most a quarter: for runs with fewer than this booting, half of them for tenants with fewer, so that no run and no tenant keeps another waiting for its slow boots",
  ),
  createsPerSecond: count(2_000, 1, 100_000, "Creates a second on average; an API server bears 85 to 240"),
  createBurst: count(2_000, 1, 100_000, "Creates at once after a rest; maxBooting bounds a burst first"),
  maxQueued: count(50_000, 1, 1_000_000, "Acquires waiting, all tenants; each holds about 1 KiB"),
  maxQueuedPerTenant: count(20_000, 1, 1_000_000, "Acquires waiting, one tenant; keeps room for the others"),
  maxSandboxesPerTenant: count(20_000, 1, 1_000_000, "Waiting and live, one tenant; more is quota_exceeded"),
  maxSandboxesPerRun: count(
    20_000,
    1,
    1_000_000,
    "Waiting and live, one run; below maxSandboxesPerTenant it keeps room for a tenant's other runs",
  ),
  bootTimeoutMs: ms(120_000, "From the create to ready; an image pull is within it", 10),
  confirmMs: ms(
    30_000,
    "From the grant to the confirm; SDKs need one round trip, a person at the nats CLI types",
    10,
  ),
  disconnectGraceMs: ms(5_000, "A daemon that lost its connection may be back by then"),
  secondConnectionGraceMs: ms(
    2_000,
    "Until the servers are asked whether two connections on one key both live",
  ),
  muteConnectionMs: ms(
    15_000,
    "Until an older connection counts as another's that is open still, but on which nobody answers: a cut network's ends late",
  ),
  serverGoneMs: ms(
    30_000,
    "A NATS server that has answered nothing for so long is gone, and its connections with it",
  ),
  deadManGraceMs: ms(5_000, "A daemon outlives its lease by this, so that the pool comes first"),
  recoveryGraceMs: ms(
    8_000,
    "After the pool's or the server's absence, for clients to renew and daemons to speak; what nobody renews is still gone 10 s after its lease",
  ),
  maxLifeMs: ms(24 * HOUR_MS, "No sandbox lives longer, whatever is asked for or renewed", 1_000),
  removeTimeoutMs: ms(
    60_000,
    "One call to the provider's remove, of several sandboxes since the last one of them that is gone; what is left is tried again, each alone",
  ),
  removeRetryMinMs: ms(250, "First wait before a failed removal is tried again; it doubles"),
  removeRetryMaxMs: ms(30_000, "Longest wait between two tries; they never end"),
  maxRemoving: count(
    1_000,
    1,
    100_000,
    "Sandboxes under removal at once, each provider; an API server that ends 100 to 200 a second has some seconds of work in them, and more only wait there beyond their time limits",
  ),
  releaseAnswerMs: ms(
    60_000,
    "A release that is not verified by then is answered with an error; the duty stays",
  ),
  reconcileMs: ms(30_000, "Between two comparisons with the provider's list, which find orphans and losses"),
  providerListMs: ms(30_000, "One call to a provider's list"),
  providerPassMs: ms(
    90_000,
    "How long a provider that had no room, no rights or no answer is passed over where another can; longer than reconcileMs and providerListMs, so that one that stays away is not tried in between",
  ),
  tombstoneMs: ms(600_000, "How long the end of an acquire is remembered, for those who ask again"),
  maxTombstones: count(100_000, 1, 10_000_000, "Remembered ends; about 2 KiB each"),
  validateCacheMs: ms(10_000, "A spec that a provider found good is not shown to it again within this"),
});
export type PoolLimits = v.InferOutput<typeof PoolLimits>;

/** One provider of the pool's. */
export const ProviderEntry = v.object({
  /** In records, grants and metrics, and what a spec may ask for: never to be given to another cluster or namespace. */
  name: Id,
  /** Default the name: `kubernetes`, `local` or `simulated`. */
  kind: v.exactOptional(Id),
  weight: v.optional(v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(1_000)), 0),
  settings: v.optional(v.record(v.string(), v.unknown()), {}),
});
export type ProviderEntry = v.InferOutput<typeof ProviderEntry>;

export const PoolConfig = v.object({
  ...PoolLimits.entries,
  name: v.optional(v.pipe(Id, v.description("In status and logs")), "pool"),
  urls: v.pipe(v.array(v.string()), v.minLength(1), v.description("NATS servers, as the pool reaches them")),
  daemonUrls: v.optional(
    v.pipe(v.array(v.string()), v.minLength(1), v.description("As sandboxes reach them; default `urls`")),
  ),
  caFile: v.optional(v.pipe(v.string(), v.description("PEM of the CA, where the servers speak TLS"))),
  credentialsFile: v.pipe(v.string(), v.description("The pool's .creds file")),
  keysFile: v.pipe(v.string(), v.description("The signing keys with which it mints")),
  providers: v.pipe(
    v.array(ProviderEntry),
    v.minLength(1),
    v.check(
      (entries) => new Set(entries.map(({ name }) => name)).size === entries.length,
      "two of one name; give each its own, and say `kind`",
    ),
    v.description(
      "{name, kind, weight, settings}: those with a weight share what they can by it; the others are spares, in their order",
    ),
  ),
  recordReplicas: v.optional(
    v.pipe(v.picklist([1, 3, 5]), v.description("Copies of the records in a NATS cluster; 3 there")),
    1,
  ),
  httpListen: v.optional(
    v.pipe(
      v.string(),
      v.regex(LISTEN_ADDRESS, "must be HOST:PORT"),
      v.description("HOST:PORT of /healthz, /readyz and /metrics; none where it is left out"),
    ),
  ),
  logLevel: v.optional(
    v.pipe(
      v.picklist(["trace", "debug", "info", "warn", "error", "silent"]),
      v.description("One line an event at info"),
    ),
    "info",
  ),
});
export type PoolConfig = v.InferOutput<typeof PoolConfig>;

/** The limits with their defaults, and what is given over them. Throws ValiError. */
export const poolLimits = (given: Partial<PoolLimits> = {}): PoolLimits => v.parse(PoolLimits, given);

const PREFIX = "SANDMESH_POOL_";
const variableOf = (key: string): string =>
  PREFIX + key.replace(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase();

/** Numbers and lists are JSON in the environment, words stand as they are. */
function fromEnvironment(env: NodeJS.ProcessEnv): Record<string, unknown> {
  const found: Record<string, unknown> = {};
  for (const key of Object.keys(PoolConfig.entries)) {
    const text = env[variableOf(key)];
    if (text !== undefined) found[key] = /^[\d[{]/.test(text) ? JSON.parse(text) : text;
  }
  return found;
}

/** Reads the settings. Throws InvalidRequestError that names the setting at fault. */
export function readPoolConfig(file: string, env: NodeJS.ProcessEnv = process.env): PoolConfig {
  let given: unknown;
  try {
    const content: unknown = JSON.parse(readBounded(file, "config"));
    given = typeof content === "object" ? { ...content, ...fromEnvironment(env) } : content;
  } catch (cause) {
    if (cause instanceof InvalidRequestError) throw cause;
    throw new InvalidRequestError(`${file}: ${(cause as Error).message}`, { field: "config", cause });
  }
  const result = v.safeParse(PoolConfig, given, { abortEarly: true });
  if (result.success) return result.output;
  const [issue] = result.issues;
  const field = v.getDotPath(issue) ?? "config";
  throw new InvalidRequestError(`${file}: ${field}: ${wordsOf(issue)}`, { field });
}

export interface Setting {
  name: string;
  variable: string;
  default: unknown;
  about: string;
}

/** Every setting with its variable, default and reason. */
export function describePoolConfig(): Setting[] {
  return Object.entries(PoolConfig.entries).map(([name, schema]) => ({
    name,
    variable: variableOf(name),
    default: schema.type === "optional" && "default" in schema ? schema.default : undefined,
    about: describe(schema),
  }));
}

function describe(schema: v.GenericSchema): string {
  const inner = "wrapped" in schema ? (schema.wrapped as v.GenericSchema) : schema;
  return v.getDescription(inner) ?? "";
}
