// Waiting that others may leave: what is waited for goes on.

/** As `work`; where `signal` aborts before its end, that ends the waiting alone, by what `canceled` makes. */
export function unlessAborted<T>(work: Promise<T>, signal: AbortSignal, canceled: () => Error): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(canceled());
    const end = () => signal.removeEventListener("abort", abort);
    work.then(resolve, reject).finally(end);
    if (signal.aborted) abort();
    else signal.addEventListener("abort", abort);
  });
}
