// A command's stdin: one piece at a time to the engine, the next when that one is written.
import type { Engine } from "../native/engine.ts";

/** What a terminal takes as the end of input, at the start of a line. */
const END_OF_TRANSMISSION = Uint8Array.of(4);

export class StdinQueue {
  readonly #engine: Engine;
  readonly #handle: number;
  readonly #terminal: boolean;
  #tail: Promise<void> | undefined;
  #taken: (() => void) | undefined;
  #closing = false;
  #closed = false;

  constructor(engine: Engine, handle: number, terminal: boolean) {
    this.#engine = engine;
    this.#handle = handle;
    this.#terminal = terminal;
  }

  /** Resolves when the bytes are in the pipe, or when nobody will read them any more. After `close` they go nowhere. */
  write(data: Uint8Array): Promise<void> {
    if (this.#closing) return Promise.resolve();
    return this.#queue(data, false);
  }

  /** The end of input, after what was written before. */
  close(): void {
    if (this.#closing) return;
    this.#closing = true;
    void this.#queue(this.#terminal ? END_OF_TRANSMISSION : new Uint8Array(0), !this.#terminal);
  }

  /** The engine has written what it had kept. */
  taken(): void {
    const resolve = this.#taken;
    this.#taken = undefined;
    resolve?.();
  }

  /** The command has ended: whoever waits goes on. */
  abandon(): void {
    this.#closed = true;
    this.taken();
  }

  #queue(data: Uint8Array, last: boolean): Promise<void> {
    const before = this.#tail;
    const own = before === undefined ? this.#send(data, last) : before.then(() => this.#send(data, last));
    this.#tail = own;
    void own.then(() => {
      if (this.#tail === own) this.#tail = undefined;
    });
    return own;
  }

  #send(data: Uint8Array, last: boolean): Promise<void> {
    if (this.#closed) return Promise.resolve();
    const result = this.#engine.stdin(this.#handle, data, last);
    if (result === "later") return new Promise((resolve) => (this.#taken = resolve));
    if (result === "closed") this.#closed = true;
    return Promise.resolve();
  }
}
