// Waiting that others may leave: what is waited for goes on.
import { whenAborted } from "./on-abort.ts";

/** As `work`; where `signal` aborts before its end, that ends the waiting alone, by what `canceled` makes. */
export function unlessAborted<T>(work: Promise<T>, signal: AbortSignal, canceled: () => Error): Promise<T> {
  return new Promise((resolve, reject) => {
    const unhear = whenAborted(signal, () => reject(canceled()));
    work.then(resolve, reject).finally(unhear);
  });
}
