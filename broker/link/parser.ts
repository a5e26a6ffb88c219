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
const CR = 0x0d;
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

  /** Where the rest of a message goes of which a part has come; undefined where there is none. */
  get gap(): Uint8Array | undefined {
    return this.#payload?.subarray(this.#filled);
  }

  /** So many bytes stand in the gap by now. */
  came(length: number): void {
    this.#filled += length;
    this.#whole();
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
    if (payload === undefined) return at;
    const part = chunk.subarray(at, at + payload.length - this.#filled);
    payload.set(part, this.#filled);
    this.#filled += part.length;
    this.#whole();
    return at + part.length;
  }

  /** Hands on the message under way, where all of it is there. */
  #whole(): void {
    const payload = this.#payload;
    const arg = this.#arg;
    if (payload === undefined || arg === undefined || this.#filled < payload.length) return;
    this.#payload = undefined;
    this.#arg = undefined;
    this.#events.message(arg, payload.subarray(0, arg.size));
  }
}

const SPACE = 0x20;
const TAB = 0x09;
const DIGIT = 0x30;
/** Where the words of a line begin and end, by turns; a line has at most six. */
const words = new Int32Array(12);

/** Splits a line at white space; answers how many words it has, 7 for any more than 6. */
function split(line: Uint8Array): number {
  let count = 0;
  let inside = false;
  for (let i = 0; i < line.length; i++) {
    const white = isWhite(line[i]);
    if (white !== inside) continue;
    inside = !white;
    if (!white && count === 6) return 7;
    words[2 * count + (white ? 1 : 0)] = i;
    if (white) count++;
  }
  return count;
}

const isWhite = (c: number | undefined): boolean => c === SPACE || c === TAB || c === CR || c === NEWLINE;

/** A whole number that a word says; NaN where it is none. */
function numberAt(line: Uint8Array, word: number): number {
  let value = 0;
  const end = words[2 * word + 1] ?? 0;
  for (let i = words[2 * word] ?? 0; i < end; i++) {
    const digit = (line[i] ?? 0) - DIGIT;
    if (digit < 0 || digit > 9) return Number.NaN;
    value = value * 10 + digit;
  }
  return value;
}

const wordAt = (line: Uint8Array, word: number): Uint8Array =>
  line.subarray(words[2 * word], words[2 * word + 1]);

/** `MSG <subject> <sid> [reply] <size>` or `HMSG <subject> <sid> [reply] <headers> <size>`. Not by a split of text: that
 * takes some 3 us, as long as all else that becomes of a message here. */
function argOf(line: Uint8Array): MessageArg {
  const count = split(line);
  const verb = (words[1] ?? 0) - (words[0] ?? 0);
  const headers = verb === 4;
  const numbers = headers ? 2 : 1;
  const sid = numberAt(line, 2);
  const size = numberAt(line, count - 1);
  const hdr = headers ? numberAt(line, count - 2) : -1;
  const hasReply = count === 4 + numbers;
  const right =
    (verb === 3 || verb === 4) &&
    (hasReply || count === 3 + numbers) &&
    Number.isInteger(sid) &&
    size <= MAX_PAYLOAD_BYTES &&
    Number.isInteger(hdr) &&
    hdr <= size &&
    VERB.test(textOf(line.subarray(0, words[1])));
  if (!right) throw new Error(`the server sent ${JSON.stringify(textOf(line).slice(0, 100).trimEnd())}`);
  return {
    subject: wordAt(line, 1),
    sid,
    hdr,
    size,
    ...(hasReply ? { reply: wordAt(line, 3) } : {}),
  };
}

const VERB = /^h?msg$/i;
const textOf = (bytes: Uint8Array): string =>
  Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("latin1");
