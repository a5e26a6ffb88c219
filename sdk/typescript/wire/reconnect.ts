// What was asked before the connection was lost may be lost with it: told when the connection is back, not when the
// patience for an answer is over.
import { CanceledError, ConnectionError } from "../../../broker/contract/index.ts";
import { stopWith } from "./pause.ts";
import type { Pulse } from "./pulse.ts";

/** Runs `work`, which must heed the signal that it gets. Throws ConnectionError where the connection was lost and
 * came back before it was done. */
export async function orReconnect<T>(
  pulse: Pulse,
  signal: AbortSignal | undefined,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const either = stopWith(signal);
  const waiting = { onTick: () => undefined, onReconnect: either.stop };
  pulse.add(waiting);
  try {
    return await work(either.signal);
  } catch (error) {
    const reconnected = either.signal.aborted && signal?.aborted !== true && error instanceof CanceledError;
    throw reconnected
      ? new ConnectionError("the connection was lost before the answer came", { cause: error })
      : error;
  } finally {
    either.end();
    pulse.delete(waiting);
  }
}
