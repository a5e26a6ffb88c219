// A command's stdin in a session: the shell's stdin is one pipe for its whole life; a command that has input gets a
// writer on it while it runs. Without a writer the pipe is at its end, as /dev/null is.
import { closeAll, discard, growPipe, openReader, openWriter, writeSome } from "./libc.ts";

const PIPE_BYTES = 1024 * 1024;
/** How long until a full pipe is tried again: there is no event for it, and a megabyte gives the reader time. */
const RETRY_MS = 5;

export class StdinFeed {
  readonly #readEnd: number;
  #writer: number | undefined;
  #tail: Promise<void> = Promise.resolve();
  #closing = false;

  constructor(readEnd: number) {
    this.#readEnd = readEnd;
    this.#writer = openWriter(readEnd);
  }

  /** Resolves when the bytes are in the pipe, or when the command has ended. In order. */
  write(data: Uint8Array): Promise<void> {
    if (this.#closing) return this.#tail;
    this.#tail = this.#tail.then(() => this.#send(data));
    return this.#tail;
  }

  /** The end of input, after what was written. */
  close(): void {
    if (this.#closing) return;
    this.#closing = true;
    void this.#tail.then(() => this.#drop());
  }

  /** The command has ended: what it did not read goes, so that the next does not get it. */
  end(): void {
    this.#closing = true;
    this.#drop();
    const reader = openReader(this.#readEnd);
    discard(reader);
    closeAll([reader]);
  }

  async #send(data: Uint8Array): Promise<void> {
    for (let at = 0; this.#writer !== undefined; ) {
      at += writeSome(this.#writer, data.subarray(at));
      if (at >= data.length) return;
      growPipe(this.#writer, PIPE_BYTES);
      await Bun.sleep(RETRY_MS);
    }
  }

  #drop(): void {
    const writer = this.#writer;
    this.#writer = undefined;
    if (writer !== undefined) closeAll([writer]);
  }
}
