// Connects to NATS: `connect` answers a Link (link.ts). Works in Bun and Node, also over a unix socket.
import type { Socket } from "node:net";
import { InvalidRequestError } from "../contract/core.ts";
import { type Credentials, type Identity, identityOf, publicKeyOf } from "../credentials/index.ts";
import type { OpenIntake } from "./intake.ts";
import type { Link } from "./link.ts";
import { NatsLink } from "./nats-link.ts";
import type { ReconnectDelays } from "./protocol.ts";

export interface ConnectOptions {
  /** `nats://host:port` or `tls://host:port`; tried in this order. */
  urls: readonly string[];
  /** Asked anew at each (re)connect where it is a function. */
  credentials: Credentials | (() => Credentials);
  /** Shown in the server's lists of connections. */
  name?: string;
  /** The JWT's tag, where left out. Empty for the pool, which serves all. */
  tenant?: string;
  /** The JWT's tag, where left out; a bootstrap's is its sandbox, the pool's is "pool". */
  user?: string;
  /** What answers are heard on, where it is not what the role may hear: up to the connection's own token. */
  replies?: string;
  /** Path of a unix socket that leads to NATS. */
  relay?: string;
  /** Gives a socket that leads to NATS, at each (re)connect; where it answers undefined, `relay` or a url is dialled. */
  dial?: () => Promise<Socket | undefined>;
  /** Reads the connection's socket in the runtime's stead while large messages come. */
  intake?: OpenIntake;
  /** PEM of the CA that signed the server's certificate; TLS is required then. */
  ca?: string;
  /** How long `connect` tries in all, ms. */
  connectTimeoutMs?: number;
  /** Ends `connect` at once, at whatever stage it is; of no effect on a connection that stands. */
  signal?: AbortSignal | undefined;
  /** Goes on trying within connectTimeoutMs while no server is there, instead of failing at the first refusal. */
  patient?: boolean;
  /** How long to wait before each try to come back. */
  reconnect?: Partial<ReconnectDelays>;
  /** A server that is away for longer counts as gone: what waits for it fails, and so does what is asked until it is
   * back. Default: never. */
  goneAfterMs?: number;
  /** What cannot be thrown at anyone: a handler's throw, a refused publish or subscription. Written to stderr by
   * default. */
  onError?: (error: unknown, what: string) => void;
}

const DEFAULT_CONNECT_TIMEOUT_MS = 10_000;
const DEFAULT_DELAYS: ReconnectDelays = { firstMs: 200, baseMs: 1_000, maxMs: 5_000 };

/** Connects. Throws ConnectionError (nobody there, no TLS, timed out), PermissionDeniedError (the credential is
 * refused: wrong, expired or revoked), InvalidRequestError (`urls`, `jwt`, `seed`) or CanceledError (the signal). */
async function connectLink(options: ConnectOptions): Promise<Link> {
  const { credentials, urls, relay, ca, onError } = options;
  const current = typeof credentials === "function" ? credentials : () => credentials;
  const first = current();
  const identity = identityOf(first.jwt);
  publicKeyOf(first.seed);
  const tenant = options.tenant ?? identity.tenant ?? "";
  const user = options.user ?? userOf(identity);
  const link = new NatsLink({
    tenant,
    user,
    mayAsk: identity.role !== "observer",
    replies: options.replies ?? repliesOf(identity, tenant, user),
    urls: checkUrls(urls),
    credentials: current,
    name: options.name ?? `${identity.role} ${identity.user ?? identity.sandbox ?? ""}`.trim(),
    relay,
    dial: options.dial,
    intake: options.intake,
    ca,
    tls: ca !== undefined || urls.some((url) => url.startsWith("tls:")),
    connectTimeoutMs: options.connectTimeoutMs ?? DEFAULT_CONNECT_TIMEOUT_MS,
    patient: options.patient === true,
    delays: { ...DEFAULT_DELAYS, ...options.reconnect },
    goneAfterMs: options.goneAfterMs ?? Number.POSITIVE_INFINITY,
    onError,
  });
  await link.open(options.signal);
  return link;
}

// A name of its own: of two functions with one name a bundler numbers one, and the SDK's own would be `connect2` in stack
// traces of the package.
export { connectLink as connect };

function userOf({ role, user, sandbox }: Identity): string {
  return role === "pool" ? "pool" : (user ?? sandbox ?? "");
}

/** A bootstrap may hear the pool only, and the pool is answered by sandboxes of all tenants. */
function repliesOf({ role }: Identity, tenant: string, user: string): string {
  return `rep.v1.${tenant === "" ? "*" : tenant}.${role === "bootstrap" ? "pool" : "*"}.${user}`;
}

function checkUrls(urls: readonly string[]): readonly string[] {
  const wrong = urls.find((url) => !/^(nats|tls):\/\/[^/\s@]+$/.test(url) || !URL.canParse(url));
  if (wrong === undefined && urls.length > 0) return urls;
  const what = wrong === undefined ? "is empty" : `has ${JSON.stringify(wrong)}`;
  throw new InvalidRequestError(`urls ${what}; each must be nats://host:port or tls://host:port`, {
    field: "urls",
  });
}
