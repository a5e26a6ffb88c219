// What one connection is made with, and what the package is told of it.
import type { Socket } from "node:net";
import type { ConnectionOptions } from "nats/lib/nats-base-client/core.js";
import { SANDBOX_PREFIX } from "../contract/ids.ts";
import { authenticatorFor, type Credentials } from "../credentials/index.ts";
import { MAX_TIMER_MS } from "./after.ts";
import type { OpenIntake } from "./intake.ts";
import type { ReconnectDelays } from "./protocol.ts";

/** ConnectOptions, made definite. */
export interface LinkSettings {
  tenant: string;
  user: string;
  /** An observer's: the server lets it neither ask nor be answered. */
  mayAsk: boolean;
  /** `rep.v1.<tenant>.<responder>.<user>`, with `*` where it may be any. */
  replies: string;
  urls: readonly string[];
  credentials: () => Credentials;
  name: string;
  relay: string | undefined;
  dial: (() => Promise<Socket | undefined>) | undefined;
  intake: OpenIntake | undefined;
  ca: string | undefined;
  tls: boolean;
  connectTimeoutMs: number;
  patient: boolean;
  delays: ReconnectDelays;
  goneAfterMs: number;
  onError: ((error: unknown, what: string) => void) | undefined;
}

/** A server that hangs ends no connection: two of these later it is given up. Whoever waits for answers is not to wait for
 * long; of sandboxes there are thousands, each a wake-up and a message more. */
const PING_INTERVAL_MS = 4_000;
const SANDBOX_PING_INTERVAL_MS = 15_000;
const MAX_PINGS_OUT = 2;

export function protocolOptions(settings: LinkSettings): ConnectionOptions {
  return {
    servers: [...settings.urls],
    authenticator: authenticatorFor(settings.credentials),
    name: settings.name,
    timeout: Math.min(MAX_TIMER_MS, settings.connectTimeoutMs),
    // What is left out is true for the server, which then answers each publish with an "+OK": a packet more to send,
    // and a wake-up more at this end.
    verbose: false,
    pedantic: false,
    reconnect: true,
    maxReconnectAttempts: -1,
    waitOnFirstConnect: settings.patient,
    pingInterval: settings.user.startsWith(SANDBOX_PREFIX) ? SANDBOX_PING_INTERVAL_MS : PING_INTERVAL_MS,
    maxPingOut: MAX_PINGS_OUT,
    // The addresses that were given, in their order: a cluster's own may lead nowhere from here.
    noRandomize: true,
    ignoreClusterUpdates: true,
    ignoreAuthErrorAbort: true,
    noAsyncTraces: true,
    // The system's resolver (and /etc/hosts) is asked at each dial, not the package's own.
    resolve: false,
    ...(settings.tls ? { tls: {} } : {}),
  };
}
