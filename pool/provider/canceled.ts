// A creation that its caller has given up.
import { CanceledError } from "../../broker/contract/index.ts";
import { unlessAborted as unlessSignalAborts } from "../../broker/link/unless-aborted.ts";

export const canceled = (sandbox: string): CanceledError =>
  new CanceledError(`the creation of sandbox ${sandbox} was canceled`, { sandbox });

/** `work`, or CanceledError as soon as `signal` aborts. What is shared (an unpacking) goes on; only this caller leaves. */
export const unlessAborted = <T>(work: Promise<T>, signal: AbortSignal, sandbox: string): Promise<T> =>
  unlessSignalAborts(work, signal, () => canceled(sandbox));
