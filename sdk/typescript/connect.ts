// The way in.
import { given } from "./arguments.ts";
import { Mesh } from "./mesh.ts";
import { resolveSettings, type Settings, type SettingsOptions } from "./settings.ts";
import { defined } from "./spec.ts";
import { type Duration, milliseconds, timeLimit } from "./units.ts";
import { Caller } from "./wire/caller.ts";
import { openLink, SERVER_GONE_MS } from "./wire/open.ts";
import { throwIfAborted } from "./wire/pause.ts";
import { Pulse } from "./wire/pulse.ts";

export interface ConnectOptions extends SettingsOptions {
  /** The run of acquires that name none; it is not ended as a whole when the connection closes, only what was
   * acquired here. Default: a new run of this connection's own. */
  run?: string;
  /** Default for acquires: how long a run lives on when this process is gone. 1 s to 24 h, default 60 s. */
  lease?: Duration;
  /** How long the server may take to answer, with a credential or CA that comes by a pipe; default 10 s. A server that
   * refuses connections is told at once. */
  connectTimeout?: Duration;
  /** Release at SIGINT, SIGTERM and SIGHUP where the program has no handler of its own; default true. */
  handleSignals?: boolean;
  /** Ends the connecting; of no effect on a mesh that is connected. */
  signal?: AbortSignal;
}

const CONNECT_MS = 10_000;

/** Connects to a mesh. Close it (or `await using`): what it acquired is released then. A thread that renews begins some 250 ms
 * later, or with the first acquire; where something else is asked by then, with that alone. Throws NoMeshError,
 * ConnectionError, PermissionDeniedError (the server refuses the credential), InvalidRequestError, CanceledError,
 * DeadlineError (the end of a pipe does not come). */
export async function connect(options: ConnectOptions = {}): Promise<Mesh> {
  // Awaited for its name to stand in the stack of what that throws.
  return await connectAs(options);
}

/** As `connect`; a test has no minute. */
export async function connectAs(
  options: ConnectOptions,
  { goneAfterMs }: { goneAfterMs?: number } = {},
): Promise<Mesh> {
  const { run, lease, connectTimeout = CONNECT_MS, handleSignals, signal, ...where } = given(options);
  const until = performance.now() + timeLimit(connectTimeout, "connectTimeout");
  const settings = await resolveSettings(where, process.env, { signal, until });
  const how = defined({ run, lease, handleSignals, signal });
  const leftMs = Math.max(until - performance.now(), 1);
  return await connectBy(settings, { ...how, connectTimeout: leftMs }, goneAfterMs);
}

/** As `connect`, where it is known by now which mesh that is. */
export async function connectBy(
  settings: Settings,
  {
    run,
    lease,
    connectTimeout = CONNECT_MS,
    handleSignals = true,
    signal,
  }: Omit<ConnectOptions, keyof SettingsOptions>,
  goneAfterMs = SERVER_GONE_MS,
): Promise<Mesh> {
  const timeoutMs = timeLimit(connectTimeout, "connectTimeout");
  if (lease !== undefined) milliseconds(lease, "lease");
  throwIfAborted(signal);
  const link = await openLink(settings, { name: "sdk", timeoutMs, goneAfterMs, signal });
  const pulse = new Pulse();
  void link.closed.then(() => pulse.close());
  link.onStatus((connected) => connected && pulse.reconnected());
  return new Mesh(settings, new Caller(link), pulse, {
    handleSignals,
    ...defined({ run, lease }),
  });
}
