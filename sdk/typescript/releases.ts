// Releasing: waited for until the pool has verified it, but not for a server that is gone.
import {
  CanceledError,
  ConnectionError,
  type Grant,
  newUuidV7,
  SANDBOX_PREFIX,
  UUID_V7_PATTERN,
} from "../../broker/contract/index.ts";
import { invalid } from "./arguments.ts";
import type { Kept } from "./tenure.ts";
import type { Caller, PoolAnswer } from "./wire/caller.ts";
import { pause } from "./wire/pause.ts";
import type { Pulse } from "./wire/pulse.ts";

/** Releases are verified by the provider, which may take its time. */
export const RELEASE_TIMEOUT_MS = 120_000;
/** A server that restarts is back within this; what was acquired ends by itself when its leases lapse. */
const SERVER_AWAY_MS = 10_000;
/** Also where the server has been away for long already: it may just be coming back, and is dialled each 2 s. */
const LEAST_MS = 3_000;
const LOOK_MS = 50;

/** Exactly one of them, or text: a sandbox's id (`sb-…`), a lease (a UUIDv7) or else a run. */
export type Releasable = string | { sandbox: string } | { lease: string } | { run: string };

export type Order =
  | { sandbox: string; generation?: Grant["generation"] }
  | { lease: string }
  | { run: string };

/** All that is to be released at an end. */
export interface Holdings {
  runs: string[];
  leases: string[];
}

/** Throws what the pool answers, and ConnectionError where the server has been away for 10 s. */
export async function release(caller: Caller, pulse: Pulse, order: Order): Promise<PoolAnswer<"release">> {
  const away = new AbortController();
  const began = Date.now();
  const waiting = {
    onTick: (now: number) => {
      if (caller.link.awayMs >= SERVER_AWAY_MS && now - began >= LEAST_MS) away.abort();
    },
    onReconnect: () => undefined,
  };
  pulse.add(waiting);
  try {
    while (caller.link.gone !== undefined && Date.now() - began < LEAST_MS) await pause(LOOK_MS);
    // Asked again, its answer counts what the first one ended.
    const request = { ...order, id: newUuidV7() };
    return await caller.pool("release", request, { timeoutMs: RELEASE_TIMEOUT_MS, signal: away.signal });
  } catch (error) {
    const gone = error instanceof ConnectionError && error.reason === "server_gone";
    if (!(gone || (error instanceof CanceledError && away.signal.aborted))) throw error;
    const what = Object.values(order)[0];
    const awayS = Math.round(caller.link.awayMs / 1000);
    throw new ConnectionError(
      `${what} was not released: the server has been away for ${awayS} s; the lease ends it`,
      { cause: error, reason: "server_gone", ...("sandbox" in order && { sandbox: order.sandbox }) },
    );
  } finally {
    pulse.delete(waiting);
  }
}

/** Runs first: what waits in a run of ours does not begin because something else of it was released. */
export const ordersOf = ({ runs, leases }: Holdings): Order[] => [
  ...runs.map((run) => ({ run })),
  ...leases.map((lease) => ({ lease })),
];

/** Throws InvalidRequestError where it is none. */
export function orderOf(what: Releasable): Order {
  if (typeof what !== "string") {
    if (typeof what !== "object" || what === null)
      throw invalid(
        "what",
        "must be a sandbox, a lease or a run: text, or one of { sandbox }, { lease }, { run }",
      );
    return what;
  }
  if (what.startsWith(SANDBOX_PREFIX)) return { sandbox: what };
  return UUID_V7_PATTERN.test(what) ? { lease: what } : { run: what };
}

/** At most so many sandboxes are named in a message. */
const NAMED = 10;

/** What a connection that was closed without its server leaves to the leases. */
export function notReleased(held: readonly Kept[], cause: ConnectionError): ConnectionError {
  const names = held.slice(0, NAMED).map(({ sandbox }) => sandbox);
  const more = held.length > NAMED ? ` and ${held.length - NAMED} more` : "";
  const longest = Math.max(0, ...held.map(({ leaseMs }) => leaseMs));
  return new ConnectionError(
    `closed without the server: not released were ${names.join(", ")}${more}; their leases end them within ${longest / 1000} s of the last renewal`,
    { cause, reason: "server_gone" },
  );
}
