// `read` and `pack`: a source of bytes as chunk frames, as far as the reader's credit and the connection's budget go.
import { BusyError, TooLargeError } from "../contract/index.ts";
import { giveBlock } from "../link/blocks.ts";
import { Alarm } from "./alarm.ts";
import type { Context, Reply } from "./context.ts";
import type { ByteSource } from "./executor.ts";
import { type CreditTaker, type Flow, type StreamName, tokenOf, Window } from "./flow.ts";
import { STALL_MS } from "./stream-reader.ts";

/** Downloads at once in one sandbox; each holds a file open. */
const MAX_DOWNLOADS = 64;

export class Downloads {
  readonly #context: Context;
  readonly #flow: Flow;
  readonly #open = new Set<Download>();
  #opening = 0;

  constructor(context: Context, flow: Flow) {
    this.#context = context;
    this.#flow = flow;
  }

  /** Answers with all that the source gives. Throws what `open` throws, BusyError, and TooLargeError where it is more
   * than one answer holds and no credit was given. */
  async send(
    reply: Reply,
    id: string,
    credit: number | undefined,
    open: () => Promise<ByteSource>,
  ): Promise<void> {
    if (this.#open.size + this.#opening >= MAX_DOWNLOADS) {
      throw new BusyError(`${MAX_DOWNLOADS} downloads are under way already`);
    }
    this.#opening++;
    let source: ByteSource;
    try {
      source = await open();
    } finally {
      this.#opening--;
    }
    const download = new Download(this.#context, this.#flow, reply, id, source, credit);
    this.#open.add(download);
    try {
      await download.run();
    } finally {
      this.#open.delete(download);
    }
  }

  /** false where there is none of that name. */
  abort(id: string): boolean {
    const found = [...this.#open].filter((download) => download.id === id);
    for (const download of found) download.stop();
    return found.length > 0;
  }

  close(): void {
    for (const download of this.#open) download.stop();
  }
}

class Download implements CreditTaker {
  readonly #context: Context;
  readonly #flow: Flow;
  readonly #reply: Reply;
  /** In its frames, and to abort it by. */
  readonly id: string;
  readonly #source: ByteSource;
  readonly #streaming: boolean;
  readonly #window: Window;
  readonly #stall = new Alarm(() => this.stop());
  readonly #again = () => this.#wake?.();
  #wake: (() => void) | undefined;
  #stopped: Error | undefined;

  constructor(
    context: Context,
    flow: Flow,
    reply: Reply,
    id: string,
    source: ByteSource,
    credit: number | undefined,
  ) {
    this.#context = context;
    this.#flow = flow;
    this.#reply = reply;
    this.id = id;
    this.#source = source;
    this.#streaming = credit !== undefined;
    this.#window = new Window(0, credit ?? 0);
  }

  async run(): Promise<void> {
    const token = tokenOf(this.#reply.subject);
    this.#flow.open(token, this);
    try {
      const head = await this.#head();
      if (head.whole) this.#end(head.data, head.data.length);
      else if (this.#streaming) await this.#stream(head.data);
      else this.#refuseSize();
    } finally {
      this.#context.deadlines.clear(this.#stall);
      this.#flow.close(token, this);
      this.#flow.forget(this.#again);
      this.#flow.give(this.#window.inFlight);
      await this.#source.close();
    }
  }

  #refuseSize(): never {
    throw new TooLargeError(
      `more than the ${this.#context.inlineBytes(this.#reply.encoding)} bytes of one answer; give credit_bytes`,
      { field: "credit_bytes" },
    );
  }

  /** Reads as much as one answer holds, to find out whether that is all. */
  async #head(): Promise<{ data: Uint8Array; whole: boolean }> {
    const max = this.#context.inlineBytes(this.#reply.encoding);
    const { size } = this.#source;
    if (size !== undefined && size > max) return { data: new Uint8Array(0), whole: false };
    const parts: Uint8Array[] = [];
    let length = 0;
    while (length <= max) {
      const part = await this.#source.read(max + 1 - length);
      if (part === undefined) break;
      parts.push(part);
      length += part.length;
    }
    const [first] = parts;
    const data = parts.length === 1 && first !== undefined ? first : Buffer.concat(parts);
    return { data, whole: length <= max };
  }

  async #stream(head: Uint8Array): Promise<void> {
    const max = this.#context.chunkBytes(this.#reply.encoding);
    let rest: Uint8Array | undefined = head.length > 0 ? head : undefined;
    for (;;) {
      const room = await this.#room(max);
      const data: Uint8Array | undefined = rest ?? (await this.#read(room));
      if (data === undefined) break;
      const part = data.subarray(0, room);
      rest = data.length > room ? data.subarray(room) : undefined;
      this.#flow.give(room - part.length);
      this.#chunk(part, rest === undefined);
    }
    this.#end(undefined, this.#window.sent);
  }

  async #read(room: number): Promise<Uint8Array | undefined> {
    try {
      const data = await this.#source.read(room);
      if (data === undefined) this.#flow.give(room);
      return data;
    } catch (error) {
      this.#flow.give(room);
      throw error;
    }
  }

  /** `last`: of what the source gave. */
  #chunk(data: Uint8Array, last: boolean): void {
    const offset = this.#window.sent;
    this.#window.sent += data.length;
    const frame = { id: this.id, stream: "data", offset } as const;
    if (!this.#context.chunk(this.#reply, frame, [data], data.length)) throw this.#stopped ?? givenUp();
    if (last && this.#context.link.idle) giveBlock(data);
  }

  /** Waits until something may be sent, and takes it of the budget. */
  async #room(max: number): Promise<number> {
    for (;;) {
      if (this.#stopped !== undefined) throw this.#stopped;
      const wanted = Math.min(max, this.#window.until - this.#window.sent);
      const room = wanted > 0 ? this.#flow.take(wanted, this.#window, this.#again) : 0;
      if (room > 0) return room;
      this.#context.deadlines.set(this.#stall, STALL_MS);
      await new Promise<void>((wake) => {
        this.#wake = wake;
      });
      this.#context.deadlines.clear(this.#stall);
    }
  }

  #end(data: Uint8Array | undefined, total: number): void {
    const { size, leftOut } = this.#source;
    this.#context.answer(this.#reply, {
      type: "file_end",
      total_bytes: total,
      ...(data === undefined || data.length === 0 ? {} : { data }),
      ...(size === undefined ? {} : { size }),
      ...(leftOut === undefined || leftOut.count === 0
        ? {}
        : { skipped: leftOut.paths, skipped_count: leftOut.count }),
    });
  }

  credit(stream: StreamName, received: number, until: number): void {
    if (stream !== "data") return;
    this.#flow.give(this.#window.credit(received, until));
    this.#wake?.();
  }

  left(): void {
    this.stop();
  }

  stop(): void {
    this.#stopped = givenUp();
    this.#wake?.();
  }
}

const givenUp = (): BusyError => new BusyError("no credit came for the data", { reason: "reader_stalled" });
