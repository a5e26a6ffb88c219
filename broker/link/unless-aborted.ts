// Waiting that others may leave: what is waited for goes on.
import { onAbort } from "./on-abort.ts";

/** As `work`; where `signal` aborts before its end, that ends the waiting alone, by what `canceled` makes. */
export function unlessAborted<T>(work: Promise<T>, signal: AbortSignal, canceled: () => Error): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(canceled());
    const end = onAbort(signal, abort);
    work.then(resolve, reject).finally(end);
    if (signal.aborted) abort();
  });
}
