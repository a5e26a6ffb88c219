// Opens a connection from settings.
import { lastReadable } from "../../../broker/credentials/index.ts";
import { connect } from "../../../broker/link/connect.ts";
import type { Link } from "../../../broker/link/link.ts";
import { readCredentials, type Settings } from "../settings.ts";

/** A server that restarts, or fails over, is back well within this; who waits longer waits for one that is gone. It is
 * for all that is asked and all that waits, of whatever kind, and the one limit of what has no deadline of its own. */
export const SERVER_GONE_MS = 60_000;

export interface OpenOptions {
  /** What the connection is for; shown in the server's list. */
  name: string;
  timeoutMs: number;
  /** Goes on trying until then while no server is there. */
  patient?: boolean;
  goneAfterMs: number;
  signal?: AbortSignal | undefined;
}

/** Throws ConnectionError, PermissionDeniedError (the server refuses the credential), InvalidRequestError,
 * CanceledError. */
export function openLink(settings: Settings, options: OpenOptions): Promise<Link> {
  return connect({
    urls: settings.urls,
    credentials: lastReadable(() => readCredentials(settings.credentials)),
    ...(settings.ca === undefined ? {} : { ca: settings.ca }),
    tenant: settings.tenant,
    user: settings.user,
    name: `${settings.user} ${options.name}`,
    connectTimeoutMs: options.timeoutMs,
    goneAfterMs: options.goneAfterMs,
    signal: options.signal,
    patient: options.patient === true,
    reconnect: { firstMs: 50, baseMs: 200, maxMs: 2_000 },
  });
}
