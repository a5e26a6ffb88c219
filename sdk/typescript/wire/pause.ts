// A wait that an AbortSignal cuts short, and what an aborted one throws.
import { CanceledError, type ErrorDetail } from "../../../broker/contract/index.ts";
import { onAbort, whenAborted } from "../../../broker/link/on-abort.ts";
import { unlessAborted as unlessSignalAborts } from "../../../broker/link/unless-aborted.ts";

/** What a call whose caller's signal has aborted throws, with the signal's reason as the cause. */
export const canceledBy = (signal: AbortSignal | undefined, detail: ErrorDetail = {}): CanceledError =>
  new CanceledError("canceled by the caller", { cause: signal?.reason, ...detail });

/** A signal that aborts with the caller's, for the same reason, or by `stop`; `end` lets go of the caller's. */
export function stopWith(signal: AbortSignal | undefined): {
  signal: AbortSignal;
  stop: () => void;
  end: () => void;
} {
  const control = new AbortController();
  const stop = () => control.abort(signal?.reason);
  return { signal: control.signal, stop, end: whenAborted(signal, stop) };
}

/** Resolves after `ms`, or as soon as `signal` aborts; never rejects. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  if (signal?.aborted === true) return Promise.resolve();
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      unhear();
      resolve();
    };
    const timer = setTimeout(done, ms);
    const unhear = onAbort(signal, done);
  });
}

/** As `work`, which goes on where `signal` aborts before its end: that ends the waiting alone, by CanceledError. */
export function unlessAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  return signal === undefined ? work : unlessSignalAborts(work, signal, () => canceledBy(signal));
}

/** Throws CanceledError where the caller's signal has aborted. */
export function throwIfAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted === true) throw canceledBy(signal);
}
