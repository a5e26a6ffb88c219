// Signals by number, as Linux has them on x86-64 and arm64.
import { InvalidRequestError } from "../../broker/contract/index.ts";

export const SIGINT = 2;
export const SIGKILL = 9;
export const SIGSTOP = 19;
export const SIGTERM = 15;
export const SIGCONT = 18;

/** What whoever signals `what` is told. */
export const noProcess = (what: string): InvalidRequestError =>
  new InvalidRequestError(`signal: ${what} has no process that could be sent one`, { field: "signal" });

/** False where it has ended meanwhile, or is not ours to signal. */
export function send(pid: number, signal: NodeJS.Signals | number): boolean {
  try {
    return process.kill(pid, signal);
  } catch {
    return false;
  }
}
