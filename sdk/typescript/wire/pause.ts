// A wait that an AbortSignal cuts short, and what an aborted one throws.
import { CanceledError } from "../../../broker/contract/index.ts";

/** Resolves after `ms`, or as soon as `signal` aborts; never rejects. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  if (signal?.aborted === true) return Promise.resolve();
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal?.addEventListener("abort", done);
  });
}

/** As `work`, which goes on where `signal` aborts before its end: that ends the waiting alone, by CanceledError. */
export function unlessAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return work;
  return new Promise((resolve, reject) => {
    const abort = () => reject(new CanceledError("canceled by the caller", { cause: signal.reason }));
    const end = () => signal.removeEventListener("abort", abort);
    work.then(resolve, reject).finally(end);
    if (signal.aborted) abort();
    else signal.addEventListener("abort", abort);
  });
}

/** Throws CanceledError where the caller's signal has aborted, with its reason as the cause. */
export function throwIfAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted === true) throw new CanceledError("canceled by the caller", { cause: signal.reason });
}
