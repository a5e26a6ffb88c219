// The daemon's end of a session's stdout or stderr: read as it comes, and known to be read empty when a command ends.
import { growPipe, makeNonBlocking, waiting } from "./libc.ts";

/** What Bun reads ahead of us at most, beside what the pipe holds. */
const READ_AHEAD_BYTES = 1024 * 1024;
/** A stream that has given a part this large is talkative: a larger pipe saves switches between the two processes. */
const TALKATIVE_BYTES = 48 * 1024;
const LARGE_PIPE_BYTES = 256 * 1024;

/** As much of a stream's reader as is used here; Bun's and the standard's types differ in the rest. */
export interface PartReader {
  read(): Promise<{ value?: Uint8Array | undefined; done: boolean }>;
  cancel(): Promise<void>;
}

export class OutputPipe {
  readonly #end: number;
  readonly #reader: PartReader;
  readonly #onData: (data: Uint8Array) => void;
  readonly #onIdle: () => void;
  #paused = false;
  #resume: (() => void) | undefined;
  #reading = false;
  #ended = false;
  #large = false;
  /** So much may come after the command's end until it counts as a background process's. */
  #owed = 0;
  #draining = false;

  /** `onData` gets each part, which is its own; `onIdle` is called after `drain`, when all is read. */
  constructor(end: number, onData: (data: Uint8Array) => void, onIdle: () => void) {
    this.#end = end;
    this.#onData = onData;
    this.#onIdle = onIdle;
    makeNonBlocking(end);
    this.#reader = Bun.file(end).stream().getReader();
    void this.#pump();
  }

  pause(paused: boolean): void {
    this.#paused = paused;
    if (paused) return;
    this.#resume?.();
    this.#resume = undefined;
  }

  /** Everything written before now is to be read; `onIdle` tells when. What the shell and what it waited for wrote is
   * in the pipe by the time it reports. */
  drain(): void {
    this.#draining = true;
    this.#owed = waiting(this.#end) + READ_AHEAD_BYTES;
    // Parts that Bun has read already are on their way, some microtasks before or after the report.
    queueMicrotask(() => queueMicrotask(() => queueMicrotask(() => this.#checkIdle())));
  }

  async close(): Promise<void> {
    this.#ended = true;
    this.pause(false);
    await this.#reader.cancel().catch(() => {});
  }

  #checkIdle(): void {
    if (!this.#draining) return;
    // While a read is outstanding Bun holds nothing back; then what is not in the pipe either is not there.
    const empty = this.#ended || (this.#reading && waiting(this.#end) === 0);
    if (!empty && this.#owed > 0) return;
    this.#draining = false;
    this.#onIdle();
  }

  async #pump(): Promise<void> {
    while (!this.#ended) {
      if (this.#paused) await new Promise<void>((resolve) => (this.#resume = resolve));
      this.#reading = true;
      const read = this.#reader.read();
      if (this.#draining) queueMicrotask(() => queueMicrotask(() => this.#checkIdle()));
      const { value, done } = await read.catch(() => ({ value: undefined, done: true }));
      this.#reading = false;
      if (done || value === undefined) break;
      if (value.length >= TALKATIVE_BYTES && !this.#large) {
        this.#large = true;
        growPipe(this.#end, LARGE_PIPE_BYTES);
      }
      if (this.#draining) this.#owed -= value.length;
      this.#onData(value);
    }
    this.#ended = true;
    this.#checkIdle();
  }
}
