// A fifo, a terminal or a device of this machine may let us wait for ever. That is never waited for in a call to the kernel:
// no signal would be heard there, and the process could not end.
import { pause, throwIfAborted } from "../wire/pause.ts";

/** How soon it is tried again, ms: doubled while nothing comes, or is taken. */
const FIRST_PAUSE_MS = 1;
const LONGEST_PAUSE_MS = 50;

/** What `work` answers, which is tried again as long as that is undefined. Throws CanceledError where the signal aborts. */
export async function untilReady<T>(
  signal: AbortSignal | undefined,
  work: () => Promise<T | undefined>,
): Promise<T> {
  for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS)) {
    const answer = await work();
    if (answer !== undefined) return answer;
    await pause(pauseMs, signal);
    throwIfAborted(signal);
  }
}
