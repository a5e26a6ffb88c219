// A command's stdin in a session: the shell's stdin is one pipe for its whole life; a command that has input gets a
// writer on it while it runs. Without a writer the pipe is at its end, as /dev/null is.
import { closeAll, discard, growPipe, openReader, openWriter, writeSome } from "./libc.ts";

const PIPE_BYTES = 1024 * 1024;
/** How long until a full pipe is tried again: there is no event for it, and a megabyte gives the reader time. */
const RETRY_MS = 5;

export class StdinFeed {
  /** Opened ahead, so that a command's end needs no descriptor: there may be none left by then. */
  readonly #reader: number;
  #writer: number | undefined;
  #tail: Promise<void> = Promise.resolve();
  #closing = false;

  /** Throws (EMFILE) where no descriptors are left. */
  constructor(readEnd: number) {
    this.#reader = openReader(readEnd);
    try {
      this.#writer = openWriter(readEnd);
    } catch (thrown) {
      closeAll([this.#reader]);
      throw thrown;
    }
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

  /** Once. The command has ended: what it did not read goes, so that the next does not get it. */
  end(): void {
    this.#closing = true;
    this.#drop();
    discard(this.#reader);
    closeAll([this.#reader]);
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
