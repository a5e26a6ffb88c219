// A creation that its caller has given up.
import { CanceledError } from "../../../broker/contract/index.ts";

export const canceled = (sandbox: string): CanceledError =>
  new CanceledError(`the creation of sandbox ${sandbox} was canceled`, { sandbox });

/** `work`, or CanceledError as soon as `signal` aborts. What is shared (an unpacking) goes on; only this caller leaves. */
export async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal, sandbox: string): Promise<T> {
  if (signal.aborted) throw canceled(sandbox);
  let leave: () => void = () => undefined;
  const aborted = new Promise<never>((_, reject) => {
    leave = () => reject(canceled(sandbox));
    signal.addEventListener("abort", leave, { once: true });
  });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener("abort", leave);
    work.catch(() => undefined);
  }
}
