// What the renewing thread is told, and what it tells.
import * as v from "valibot";
import type { WireError } from "../../../broker/contract/index.ts";
import type { Holdings } from "../releases.ts";
import type { Settings } from "../settings.ts";

/** The thread's `workerData`. */
export const KeeperData = v.object({
  settings: v.object({
    urls: v.array(v.string()),
    credentials: v.string(),
    ca: v.exactOptional(v.string()),
    tenant: v.string(),
    user: v.string(),
  }) satisfies v.GenericSchema<unknown, Settings>,
});
export type KeeperData = v.InferOutput<typeof KeeperData>;

/** A daemon outlives its lease by some seconds, so that the pool comes first; after these it has ended itself. */
export const DEAD_MAN_MS = 10_000;

export interface ReleaseOrder extends Holdings {
  timeoutMs: number;
}

export type ToKeeper =
  | { type: "keep"; run: string; leaseMs: number }
  | { type: "drop"; run: string }
  /** Releases all of it; `done[0]` becomes 1 and is notified, for a main thread that waits without its event loop. */
  | ({ type: "release"; done: Int32Array<SharedArrayBuffer> } & ReleaseOrder);

/** What a keeper finds out. */
export type Loss =
  /** The pool does not know this run (any more). `askedAt`: ms since the epoch, when the renewal was sent. */
  | { type: "refused"; run: string; askedAt: number; error: WireError }
  /** With the server away no renewal has arrived for the whole lease and longer: what was acquired before `renewedAt` (ms
   * since the epoch) has ended. Told again at each try. */
  | { type: "lapsed"; run: string; renewedAt: number; leaseMs: number };

/** `connected`: from now on the thread renews. `unconnected`: it never will, its connection was refused for good. */
export type FromThread = Loss | { type: "connected" } | { type: "unconnected"; why: string };
