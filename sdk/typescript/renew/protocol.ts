// What the renewing thread is told, and what it tells.
import type { WireError } from "../../../broker/contract/index.ts";
import type { Settings } from "../settings.ts";

/** The thread's `workerData`. */
export interface KeeperData {
  settings: Settings;
}

export interface ReleaseOrder {
  runs: string[];
  leases: string[];
  timeoutMs: number;
}

export type ToKeeper =
  | { type: "keep"; run: string; leaseMs: number }
  | { type: "drop"; run: string }
  /** Releases all of it; `done[0]` becomes 1 and is notified, for a main thread that waits without its event loop. */
  | ({ type: "release"; done: Int32Array<SharedArrayBuffer> } & ReleaseOrder);

export type FromKeeper =
  /** The pool does not know this run (any more). `askedAt`: ms since the epoch, when the renewal was sent. */
  { type: "refused"; run: string; askedAt: number; error: WireError };
