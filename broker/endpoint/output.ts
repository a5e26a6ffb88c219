// One output stream of a command as it is held: which bytes, from which offset, and what was left out.

import { giveBlock } from "../link/blocks.ts";

/** Written parts below this are copied together, so that a program that writes byte by byte costs no more memory than
 * its bytes. */
const SMALL_BYTES = 4096;
const MAX_BLOCK_BYTES = 64 * 1024;
/** More is not copied to be packed. */
const MAX_PACK_BYTES = 1024 * 1024;

export type Keep = "head" | "tail" | "fail";

export class OutputBuffer {
  readonly limit: number;
  readonly keep: Keep;
  /** Written by the command. */
  total = 0;
  /** Held are the bytes from `start` to `end`. */
  start = 0;
  end = 0;
  /** Bytes between `end` and `total` were left out, and so is all that follows: the limit, or the memory, is used up. */
  closed = false;
  /** The command has closed it, and goes on. */
  eof = false;
  #pieces: Uint8Array[] = [];
  /** Of the last piece, when it is a block that small parts are copied into. */
  #block: Uint8Array | undefined;
  #blockStart = 0;
  #blockUsed = 0;

  constructor(limit: number, keep: Keep) {
    this.limit = limit;
    this.keep = keep;
  }

  get held(): number {
    return this.end - this.start;
  }

  /** Takes what the command wrote; holds of it what the limit lets, at most `room` bytes more than now. Answers
   * whether the limit was passed. */
  append(data: Uint8Array, room: number): boolean {
    const { length } = data;
    this.total += length;
    if (this.keep === "tail") {
      this.#appendTail(data, room);
      return this.total > this.limit;
    }
    if (!this.closed) {
      const take = Math.max(0, Math.min(length, this.limit - this.end, room));
      this.#push(take === length ? data : data.subarray(0, take));
      this.closed = take < length;
    }
    return this.total > this.limit;
  }

  #appendTail(data: Uint8Array, room: number): void {
    const part = data.length > this.limit ? data.subarray(data.length - this.limit) : data;
    // What is skipped of the new bytes lies between the old ones and the rest, so the old ones must go first.
    if (part.length < data.length) this.clear(this.end + data.length - part.length);
    const capacity = Math.min(this.limit, this.held + Math.max(0, room));
    const over = this.held + part.length - capacity;
    this.#push(part);
    if (over > 0) this.trim(this.start + over);
  }

  #push(data: Uint8Array): void {
    const { length } = data;
    if (length === 0) return;
    this.end += length;
    if (length >= SMALL_BYTES) {
      this.#block = undefined;
      this.#pieces.push(data);
      return;
    }
    const block = this.#block;
    if (block !== undefined && this.#blockUsed + length <= block.length) {
      block.set(data, this.#blockUsed);
      this.#blockUsed += length;
      this.#pieces[this.#pieces.length - 1] = block.subarray(this.#blockStart, this.#blockUsed);
      return;
    }
    if (this.#pieces.length === 0) {
      // The first part, and mostly the only one. A copy, since the part may be a view of a large read buffer.
      this.#pieces.push(new Uint8Array(data));
      return;
    }
    const size = Math.min(MAX_BLOCK_BYTES, Math.max(SMALL_BYTES, this.held));
    const fresh = new Uint8Array(size);
    fresh.set(data);
    this.#block = fresh;
    this.#blockStart = 0;
    this.#blockUsed = length;
    this.#pieces.push(fresh.subarray(0, length));
  }

  /** Up to `max` bytes from `offset` on, which must be held. A view where they lie in one piece. */
  slice(offset: number, max: number): Uint8Array {
    const parts = this.parts(offset, max);
    return parts.length === 1 && parts[0] !== undefined ? parts[0] : Buffer.concat(parts);
  }

  /** The same as views, in order; what they show is not changed any more. */
  parts(offset: number, max: number): Uint8Array[] {
    const parts: Uint8Array[] = [];
    let wanted = Math.min(max, this.end - offset);
    let skip = offset - this.start;
    for (const piece of this.#pieces) {
      if (wanted <= 0) break;
      if (skip >= piece.length) skip -= piece.length;
      else {
        const part = piece.subarray(skip, skip + wanted);
        parts.push(part);
        wanted -= part.length;
        skip = 0;
      }
    }
    return parts;
  }

  /** Lets go of what stands before `offset`; with `give` nobody looks at it any more, and its memory is used again. */
  trim(offset: number, give = false): void {
    let excess = Math.min(offset, this.end) - this.start;
    if (excess <= 0) return;
    this.start += excess;
    let whole = 0;
    for (const piece of this.#pieces) {
      if (excess < piece.length) break;
      excess -= piece.length;
      whole++;
      if (give) giveBlock(piece);
    }
    if (whole > 0) this.#pieces.splice(0, whole);
    const first = this.#pieces[0];
    if (first === undefined) {
      this.#block = undefined;
    } else if (excess > 0) {
      this.#pieces[0] = first.subarray(excess);
      if (this.#pieces.length === 1) this.#blockStart += excess;
    }
  }

  /** Puts what is held into memory of its own size where it lies in more; nobody may look at it where it lay. */
  pack(): void {
    if (this.held > MAX_PACK_BYTES) return;
    let bytes = 0;
    for (const piece of this.#pieces) bytes += piece.buffer.byteLength;
    if (bytes - this.held < MAX_BLOCK_BYTES) return;
    const whole = Buffer.allocUnsafeSlow(this.held);
    let at = 0;
    for (const piece of this.#pieces) {
      whole.set(piece, at);
      at += piece.length;
      giveBlock(piece);
    }
    this.#pieces = [whole];
    this.#block = undefined;
  }

  /** Lets go of all, and goes on at `offset`; `give` as in `trim`. */
  clear(offset: number = this.end, give = false): void {
    if (give) for (const piece of this.#pieces) giveBlock(piece);
    this.#pieces = [];
    this.#block = undefined;
    this.start = offset;
    this.end = offset;
  }
}

let empty = new OutputBuffer(0, "head");

/** In place of the buffer of a command that has ended, where it is empty: one for all of the same limit. */
export function slimBuffer(buffer: OutputBuffer): OutputBuffer {
  const { limit, keep, total } = buffer;
  if (total > 0) return buffer;
  if (empty.limit !== limit || empty.keep !== keep) empty = new OutputBuffer(limit, keep);
  return empty;
}
