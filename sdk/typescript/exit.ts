// The way out: what is still acquired when the process ends is released before it has ended. A worker thread's `process` is
// its own: it tells of that thread's end, and of no signal. Who terminates a worker, or ends the process around it, lets it
// say nothing more; its renewing thread ends with it.
import { isMainThread } from "node:worker_threads";

/** Something that can release all it holds without an event loop. */
export interface Releasing {
  readonly handleSignals: boolean;
  /** Blocks, for a bounded time. */
  releaseBlocking(): void;
}

/** By which a person, a supervisor and a terminal that closes end a process. */
export const ENDING_SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
const open = new Set<Releasing>();
let guarded = false;

/** From now on until `unguard`, an exit of the process, or of the worker thread that this is in (the end, process.exit, an
 * uncaught exception, a signal that nobody else handles), releases what this holds first. */
export function guard(releasing: Releasing): void {
  open.add(releasing);
  if (guarded) return;
  guarded = true;
  process.on("exit", releaseAll);
  if (!isMainThread) return;
  // In front of the program's own, so that one of theirs that listens once is still there to be seen.
  for (const signal of ENDING_SIGNALS) process.prependListener(signal, onSignal);
}

export function unguard(releasing: Releasing): void {
  open.delete(releasing);
  if (open.size > 0 || !guarded) return;
  guarded = false;
  process.removeListener("exit", releaseAll);
  for (const signal of ENDING_SIGNALS) process.removeListener(signal, onSignal);
}

function releaseAll(): void {
  for (const releasing of [...open]) {
    open.delete(releasing);
    releasing.releaseBlocking();
  }
}

/** Does what the signal would have done without us, after the release. Where the program has a handler of its own,
 * that one decides what becomes of the process, and the exit, if there is one, releases. */
function onSignal(signal: NodeJS.Signals): void {
  if (process.listenerCount(signal) > 1) return;
  process.removeListener(signal, onSignal);
  for (const releasing of [...open]) {
    if (!releasing.handleSignals) continue;
    open.delete(releasing);
    releasing.releaseBlocking();
  }
  process.kill(process.pid, signal);
}
