// How the daemon rests. While a socket is open the runtime wakes each second to look whether one has timed out, and to
// renew a date that it writes nowhere; so where nothing happens the engine waits in its stead.
import type { Timers } from "./timers.ts";

/** Without a request for this long: what the runtime set timers for within itself is over by then. */
const QUIET_MS = 1_000;
/** Between what woke it, which is most often a heartbeat, and the next rest. */
const PAUSE_MS = 50;
/** The loop itself waits as well for a shorter time. */
const LEAST_MS = 100;
const MOST_MS = 2 ** 31 - 1;
/** Without a request for this long it lets go of compiled code, and of what else it can make again: the next request takes
 * some milliseconds more, and until then that is a quarter of its memory. */
const SHRINK_MS = 60_000;

export interface Resting {
  timers: Timers;
  /** Waits for something to do, at most that long; false where it cannot. */
  rest(maxMs: number): boolean;
  /** Gives memory back, as far as it can be. */
  shrink(): void;
  /** Requests so far. */
  requests(): number;
  /** There is a connection: the runtime's own timers may matter to one that is being made. */
  connected(): boolean;
  now(): number;
  later(run: () => void, ms: number): void;
}

/** Rests whenever there is nothing to do, from now on. */
export function restWhenIdle(with_: Resting): void {
  const { timers, now, later } = with_;
  let seen = with_.requests();
  let since = now();
  let shrunk = false;
  const look = (): void => {
    const requests = with_.requests();
    if (requests !== seen) {
      seen = requests;
      since = now();
      shrunk = false;
    }
    const quietMs = now() - since;
    if (quietMs < QUIET_MS || !with_.connected()) {
      later(look, QUIET_MS);
      return;
    }
    if (!shrunk && quietMs >= SHRINK_MS) {
      shrunk = true;
      with_.shrink();
      later(look, QUIET_MS); // a part of it is done by timers
      return;
    }
    const maxMs = Math.min(timers.nextInMs(), shrunk ? MOST_MS : SHRINK_MS - quietMs);
    if (maxMs >= LEAST_MS && !with_.rest(Math.ceil(maxMs))) return;
    later(look, PAUSE_MS);
  };
  later(look, QUIET_MS);
}
