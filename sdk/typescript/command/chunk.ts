// A part of a command's output, with text that is right also where a character is split over two parts.

const utf8 = new TextDecoder("utf-8", { ignoreBOM: true });
const NOTHING = new Uint8Array(0);

/** Length of the unfinished UTF-8 sequence at the end, 0 to 3 bytes. */
export function unfinishedTail(bytes: Uint8Array): number {
  for (let back = 1; back <= Math.min(3, bytes.length); back++) {
    const byte = bytes[bytes.length - back] ?? 0;
    if ((byte & 0xc0) === 0x80) continue; // in the middle of a sequence: look further back
    const needs = byte >= 0xf5 ? 1 : byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc2 ? 2 : 1;
    return needs > back ? back : 0;
  }
  return 0;
}

/** `offset` counts the stream's bytes from the command's start. */
export class Chunk {
  readonly stream: "stdout" | "stderr";
  readonly data: Uint8Array;
  readonly offset: number;
  readonly #carried: Uint8Array;

  constructor(stream: "stdout" | "stderr", data: Uint8Array, offset: number, carried: Uint8Array = NOTHING) {
    this.stream = stream;
    this.data = data;
    this.offset = offset;
    this.#carried = carried;
  }

  /** As UTF-8. A character that is not complete yet comes with the chunk that completes it; bad bytes become
   * U+FFFD. All chunks' texts joined are the stream's text. */
  get text(): string {
    const all = this.#carried.length === 0 ? this.data : Buffer.concat([this.#carried, this.data]);
    return utf8.decode(all.subarray(0, all.length - unfinishedTail(all)));
  }

  /** The bytes that `text` leaves for the next chunk. */
  get unfinished(): Uint8Array {
    const all = this.#carried.length === 0 ? this.data : Buffer.concat([this.#carried, this.data]);
    return all.subarray(all.length - unfinishedTail(all));
  }
}
