// A byte stream in numbered parts, as they are sent (sending.ts).
import { MAX_CHUNK_BYTES } from "../../../broker/contract/index.ts";
import { bytesOf } from "../arguments.ts";
import { unlessAborted } from "./pause.ts";

export interface Part {
  offset: number;
  data: Uint8Array;
  last: boolean;
}

/** The source has nothing more at the moment. */
export const PAUSE = Symbol("pause");

export type Source = AsyncIterable<string | Uint8Array> | Iterable<Uint8Array>;

/** The source's pieces. Where `signal` aborts this throws CanceledError at once, also while the next piece is waited for:
 * the source is told so (its iterator's `return`), and not waited for. */
export const piecesUntil = <T>(
  source: AsyncIterable<T> | Iterable<T>,
  signal: AbortSignal,
): AsyncGenerator<T, void, void> => takePieces<T, never>(source, signal);

/** The same, with `atPause` wherever the source lets one wait. */
export async function* takePieces<T, P>(
  source: AsyncIterable<T> | Iterable<T>,
  signal: AbortSignal,
  atPause?: P,
): AsyncGenerator<T | P, void, void> {
  const pieces = Symbol.asyncIterator in source ? source[Symbol.asyncIterator]() : source[Symbol.iterator]();
  let left = false;
  let waiting = false;
  try {
    for (;;) {
      left = false;
      const next = Promise.resolve(pieces.next());
      if (atPause !== undefined && !(await isSoon(next))) {
        left = waiting = true;
        yield atPause;
        left = waiting = false;
      }
      const { value, done } = await unlessAborted(next, signal);
      if (done === true) return;
      left = true;
      yield value;
    }
  } finally {
    const told = left || signal.aborted ? (async () => void (await pieces.return?.()))() : undefined;
    if (signal.aborted || waiting) told?.catch(() => undefined);
    else await told;
  }
}

/** Whether it is settled by the loop's next round. */
async function isSoon(next: Promise<unknown>): Promise<boolean> {
  let settled = false;
  const settle = (): void => {
    settled = true;
  };
  next.then(settle, settle);
  await new Promise((go) => setImmediate(go));
  return settled;
}

/** Cuts and joins to parts of MAX_CHUNK_BYTES, the last one marked; an empty source is one empty last part. What it
 * gives is copied where it is joined, so that a source may reuse its buffer. At a pause goes what there is. */
export async function* partsOf(
  source: Source | AsyncIterable<string | Uint8Array | typeof PAUSE>,
): AsyncGenerator<Part, void, void> {
  let buffer = Buffer.allocUnsafe(MAX_CHUNK_BYTES);
  let filled = 0;
  let offset = 0;
  for await (const piece of source) {
    if (piece === PAUSE) {
      if (filled === 0) continue;
      yield { offset, data: buffer.subarray(0, filled), last: false };
      offset += filled;
      buffer = Buffer.allocUnsafe(MAX_CHUNK_BYTES);
      filled = 0;
      continue;
    }
    const data = bytesOf(piece, "content");
    let used = 0;
    // Whole parts of a large piece are sent as they lie, but for the last, which is known only when more has come.
    while (filled === 0 && data.length - used > MAX_CHUNK_BYTES) {
      yield { offset, data: data.subarray(used, used + MAX_CHUNK_BYTES), last: false };
      offset += MAX_CHUNK_BYTES;
      used += MAX_CHUNK_BYTES;
    }
    while (used < data.length) {
      // Sent only when more has come: so that the last part, whatever its length, is known to be the last.
      if (filled === MAX_CHUNK_BYTES) {
        yield { offset, data: buffer, last: false };
        offset += filled;
        buffer = Buffer.allocUnsafe(MAX_CHUNK_BYTES);
        filled = 0;
      }
      const length = Math.min(data.length - used, MAX_CHUNK_BYTES - filled);
      buffer.set(data.subarray(used, used + length), filled);
      filled += length;
      used += length;
    }
  }
  yield { offset, data: buffer.subarray(0, filled), last: true };
}
