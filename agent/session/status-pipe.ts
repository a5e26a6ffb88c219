// What a session's shell says on its status pipe: a report after each line. Most come within microseconds, and are waited for
// where the loop would otherwise sleep and be woken.
import type { Engine } from "../native/engine.ts";
import { makeNonBlocking, readSome, waiting } from "./libc.ts";
import type { PartReader } from "./output-pipe.ts";

/** A report is a form feed, a nonce and up to three digits. */
const MAX_REPORT = 64;
/** How long a report is waited for as soon as a line is sent: a built-in needs less. Where it did not come within that time,
 * so many of the next lines are not waited for, twice as many each time. */
const AWAIT_US = 150;
const MAX_PASSED = 64;
const said = Buffer.alloc(1024);

export class StatusPipe {
  readonly #engine: Engine;
  readonly #end: number;
  readonly #report: (nonce: string, status: number) => void;
  readonly #reader: PartReader;
  #unfinished = "";
  /** Lines that are not waited for any more, and how many after the next that takes longer. */
  #toPass = 0;
  #passed = 1;
  #closed = false;

  /** `end` stays the caller's to close, when `close` has resolved. */
  constructor(engine: Engine, end: number, report: (nonce: string, status: number) => void) {
    this.#engine = engine;
    this.#end = end;
    this.#report = report;
    makeNonBlocking(end);
    this.#reader = Bun.file(end).stream().getReader();
    void this.#pump();
  }

  /** Whether nothing that was said is still to be read. */
  get empty(): boolean {
    return !this.#closed && waiting(this.#end) === 0;
  }

  /** A line was sent, whose report may be waited for. */
  expect(): void {
    if (this.#toPass > 0) this.#toPass -= 1;
    // After all that came with the request was looked at.
    else queueMicrotask(() => this.#await());
  }

  async close(): Promise<void> {
    await this.#reader.cancel().catch(() => {});
    this.#closed = true;
  }

  #await(): void {
    if (this.#closed) return;
    if (this.#engine.awaits(this.#end, AWAIT_US)) {
      this.#passed = 1;
      this.#take(readSome(this.#end, said));
      return;
    }
    this.#toPass = this.#passed;
    this.#passed = Math.min(MAX_PASSED, this.#passed * 2);
  }

  async #pump(): Promise<void> {
    for (;;) {
      const { value, done } = await this.#reader.read().catch(() => ({ value: undefined, done: true }));
      if (done || value === undefined) return;
      this.#take(Buffer.from(value.buffer, value.byteOffset, value.length));
    }
  }

  #take(bytes: Buffer): void {
    const lines = (this.#unfinished + bytes.toString("latin1")).split("\n");
    this.#unfinished = (lines.pop() ?? "").slice(-MAX_REPORT);
    for (const line of lines) {
      const [nonce = "", status] = line.slice(line.lastIndexOf("\f") + 1).split(" ");
      this.#report(nonce, Number(status));
    }
  }
}
