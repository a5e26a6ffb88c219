// Waiting that others may leave: what is waited for goes on.
import { CanceledError } from "../../../broker/contract/index.ts";
import { unlessAborted } from "../../../broker/link/unless-aborted.ts";

/** After a forced deletion the object is gone as soon as the server has written it. */
export const FORCED_MS = 15_000;

/** Whether `work` was done within `ms`. Throws CanceledError when the signal is aborted meanwhile. */
export async function within(work: Promise<void>, ms: number, signal: AbortSignal): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const timer = setTimeout(() => resolve(false), ms);
  work.then(() => resolve(true));
  try {
    return await unlessAborted(promise, signal, () => new CanceledError("the removal was given up"));
  } finally {
    clearTimeout(timer);
  }
}
