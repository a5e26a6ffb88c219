// What the engine tells about a command.

/** In place of a status: another part of the process has taken it, and how the command ended is not known. */
export const STATUS_TAKEN = -1;

export interface Exit {
  /** As wait(2) gives it, or STATUS_TAKEN. */
  status: number;
  /** Whether others of the leader's process group live on. */
  groupAlive: boolean;
  cpuMs: number;
  /** Of the leader and what it waited for; 0 where that is not more than the daemon's own. */
  maxRssBytes: number;
  /** It was a spare shell that someone ended just as it was given its line: nothing of that has run, nor will. */
  untaken: boolean;
}

/** Where and why a start failed; `stage` and `detail` as in failure.ts. */
export interface StartFailure {
  stage: number;
  errno: number;
  detail: number;
}

/** What the engine tells about one command; in this order, `failed` alone, or `started` … `exited` … `closed`. */
export interface EngineListener {
  started(pid: number): void;
  failed(failure: StartFailure): void;
  /** The bytes are the receiver's own. */
  output(stream: "stdout" | "stderr", data: Uint8Array): void;
  exited(exit: Exit): void;
  /** All output is there; `held`: a background process still has the pipes (what it writes from now on is dropped). */
  closed(held: boolean): void;
  /** What `stdin` did not take at once is written. */
  stdinTaken(): void;
}
