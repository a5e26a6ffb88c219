// A sandbox's whole side of the wire: enrols, connects, says ready, answers, and ends when the pool says so.
import { type Bootstrap, CanceledError, newUuidV7 } from "../contract/core.ts";
import type { ConnectOptions } from "../link/connect.ts";
import type { Counters } from "./context.ts";
import { addressOf, dial, enrol } from "./enrol.ts";
import type { Executor } from "./executor.ts";
import { type Log, SILENT } from "./log.ts";
import type { Retention } from "./retention.ts";

/** Why an endpoint ended: `released` by the pool (with its reason), `dead_man` (no word of the pool for the time it
 * had said), `closed` by its owner, `disconnected` for good. */
export interface End {
  why: "released" | "dead_man" | "closed" | "disconnected";
  reason: string;
}

export interface EndpointOptions {
  bootstrap: Bootstrap;
  /** A function where it is to be made while the pool answers the enrolment; not called where that is not asked for. */
  executor: Executor | (() => Promise<Executor>);
  log?: Log;
  /** Milliseconds that only grow. */
  now?: () => number;
  /** On `now`'s clock: the daemon's exec. Default: 0, this process's start on performance.now's clock. */
  startedAtMs?: number;
  /** Called once, when it has ended and all is closed. */
  onEnd?: (end: End) => void;
  /** Between a release (or the dead man's time) and the end by force of what runs. */
  graceMs?: number;
  /** Gives the boot up; of no effect after it. */
  signal?: AbortSignal;
  retention?: Retention;
  reconnect?: ConnectOptions["reconnect"];
  dial?: ConnectOptions["dial"];
  /** Reads its socket in the runtime's stead while large messages come. */
  intake?: ConnectOptions["intake"];
}

export interface Endpoint {
  readonly incarnation: string;
  /** Of the bootstrap, or of the last grant. */
  readonly generation: number;
  readonly counters: Readonly<Counters>;
  readonly connected: boolean;
  /** Resolves when it has ended and all is closed. */
  readonly ended: Promise<End>;
  /** Hears and says nothing from now on, as a process that was stopped; but for the connection itself. For trying out
   * what becomes of the others. */
  freeze(): void;
  /** Ends all commands within the grace, and the connection. */
  close(): Promise<void>;
}

/** Boots: resolves when the sandbox is subscribed, flushed and announced. Throws within the bootstrap's time limit, by
 * then with nothing left open but the executor: DeadlineError, ConnectionError, PermissionDeniedError, or what the pool
 * refused the enrolment with. */
export async function openEndpoint(options: EndpointOptions): Promise<Endpoint> {
  const { bootstrap } = options;
  const incarnation = newUuidV7();
  const deadline = performance.now() + bootstrap.boot_timeout_ms;
  const { signal } = options;
  const address = addressOf(bootstrap, options.dial);
  // What is not needed until then is loaded while the pool answers.
  let rest: ReturnType<typeof load> | undefined;
  const begin = () => {
    rest ??= load(options.executor);
    rest.catch(() => {}); // told below, where the enrolment did not fail first
    return rest;
  };
  const { credentials, deadManMs } = await enrol(bootstrap, address, incarnation, deadline, signal, begin);
  const current = { ...credentials };
  const log = options.log ?? SILENT;
  const own: Parameters<typeof dial>[0] = {
    ...address,
    credentials: () => current,
    ...(options.reconnect === undefined ? {} : { reconnect: options.reconnect }),
    ...(options.intake === undefined ? {} : { intake: options.intake }),
    onError: (error, what) => log.warn({ sandbox: bootstrap.sandbox, what, error }, "the connection"),
  };
  const link = await dial(own, deadline, signal);
  try {
    const { SandboxEndpoint, executor } = await begin();
    if (signal?.aborted) throw new CanceledError("the boot was canceled");
    const endpoint = new SandboxEndpoint(options, incarnation, link, executor, (jwt) => {
      current.jwt = jwt;
    });
    await endpoint.open(deadManMs, deadline);
    return endpoint;
  } catch (error) {
    await link.close();
    throw error;
  }
}

async function load(executor: EndpointOptions["executor"]) {
  const [{ SandboxEndpoint }, made] = await Promise.all([
    import("./sandbox.ts"),
    typeof executor === "function" ? executor() : executor,
  ]);
  return { SandboxEndpoint, executor: made };
}
