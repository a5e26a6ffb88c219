// From the server's bytes to messages. Only MSG and HMSG are read here, which is all of the traffic; every other line goes
// to the package's own parser. That one copies a message two or three times whose bytes do not come all at once, as none
// of the large ones do.

import { takeBlock } from "./blocks.ts";

/** A message's line, as the package has it: subject and reply as bytes. */
export interface MessageArg {
  subject: Uint8Array;
  reply?: Uint8Array;
  sid: number;
  /** Bytes of headers, in front of the data; -1 where there are none. */
  hdr: number;
  /** Bytes of both. */
  size: number;
}

export interface ParserEvents {
  message(arg: MessageArg, data: Uint8Array): void;
  /** A whole line of another kind, with its end. */
  line(line: Uint8Array): void;
}

const NEWLINE = 0x0a;
const CRLF_BYTES = 2;
/** The server takes no longer ones. */
const MAX_LINE_BYTES = 64 * 1024;
const MAX_PAYLOAD_BYTES = 64 * 1024 * 1024 + MAX_LINE_BYTES;
const LOWER = 0x20;

export class MessageParser {
  readonly #events: ParserEvents;
  /** Of a line that has not ended yet. */
  #rest: Uint8Array | undefined;
  #arg: MessageArg | undefined;
  #payload: Buffer | undefined;
  #filled = 0;

  constructor(events: ParserEvents) {
    this.#events = events;
  }

  /** Throws on what is no NATS; the connection is to be ended then. What it hands on are views of `chunk`. */
  parse(chunk: Uint8Array): void {
    let at = 0;
    if (this.#payload !== undefined) at = this.#fill(chunk, 0);
    while (at < chunk.length) {
      const end = chunk.indexOf(NEWLINE, at);
      if (end < 0) {
        this.#keep(chunk.subarray(at));
        return;
      }
      let line = chunk.subarray(at, end + 1);
      at = end + 1;
      if (this.#rest !== undefined) {
        line = Buffer.concat([this.#rest, line]);
        this.#rest = undefined;
      }
      const first = (line[0] ?? 0) | LOWER;
      if (first !== 0x6d && first !== 0x68) this.#events.line(line);
      else at = this.#message(argOf(line), chunk, at);
    }
  }

  #keep(part: Uint8Array): void {
    this.#rest = this.#rest === undefined ? Uint8Array.from(part) : Buffer.concat([this.#rest, part]);
    if (this.#rest.length > MAX_LINE_BYTES) throw new Error("the server's line does not end");
  }

  /** Answers where the next line begins. */
  #message(arg: MessageArg, chunk: Uint8Array, at: number): number {
    const after = at + arg.size + CRLF_BYTES;
    if (after <= chunk.length) {
      this.#events.message(arg, chunk.subarray(at, at + arg.size));
      return after;
    }
    this.#arg = arg;
    this.#payload = takeBlock(arg.size + CRLF_BYTES);
    this.#filled = 0;
    return this.#fill(chunk, at);
  }

  #fill(chunk: Uint8Array, at: number): number {
    const payload = this.#payload;
    const arg = this.#arg;
    if (payload === undefined || arg === undefined) return at;
    const part = chunk.subarray(at, at + payload.length - this.#filled);
    payload.set(part, this.#filled);
    this.#filled += part.length;
    if (this.#filled === payload.length) {
      this.#payload = undefined;
      this.#arg = undefined;
      this.#events.message(arg, payload.subarray(0, arg.size));
    }
    return at + part.length;
  }
}

/** `MSG <subject> <sid> [reply] <size>` or `HMSG <subject> <sid> [reply] <headers> <size>`. */
function argOf(line: Uint8Array): MessageArg {
  const text = Buffer.from(line.buffer, line.byteOffset, line.length).toString("latin1");
  const [verb = "", subject = "", sid = "", ...rest] = text.trimEnd().split(/[ \t]+/);
  const headers = verb.length === 4;
  const size = Number(rest.pop());
  const hdr = headers ? Number(rest.pop()) : -1;
  const right =
    /^h?msg$/i.test(verb) &&
    Number.isInteger(size) &&
    size >= 0 &&
    size <= MAX_PAYLOAD_BYTES &&
    Number.isInteger(hdr) &&
    hdr <= size &&
    rest.length <= 1;
  if (!right) throw new Error(`the server sent ${JSON.stringify(text.slice(0, 100))}`);
  const [reply] = rest;
  return {
    subject: Buffer.from(subject, "latin1"),
    sid: Number(sid),
    hdr,
    size,
    ...(reply === undefined ? {} : { reply: Buffer.from(reply, "latin1") }),
  };
}
