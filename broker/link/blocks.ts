// Memory for bytes that only pass through, used again: each new buffer brings the next collection of garbage nearer,
// which in a daemon takes 2 to 8 ms, and its pages are faults. What is not given back is garbage like any other.

/** A smaller one costs less anew than its keeping. */
const LEAST_BYTES = 48 * 1024;
/** Sizes are multiples of it, so that few kinds of them are kept; */
const GRAIN_BYTES = 16 * 1024;
/** and all that holds a greatest chunk, with what stands around it or without, is of one. */
const CHUNK_BYTES = 256 * 1024 + GRAIN_BYTES;
const LEAST_CHUNK_BYTES = 192 * 1024;
/** Of those that wait for their next use. */
const MAX_SPARE_BYTES = 2 * 1024 * 1024;

const spare = new Map<number, Buffer[]>();
let spareBytes = 0;
const lent = new WeakSet<ArrayBufferLike>();

/** Memory of so many bytes, whose content is anything. */
export function takeBlock(length: number): Buffer {
  if (length < LEAST_BYTES) return Buffer.allocUnsafeSlow(length);
  const isChunk = length > LEAST_CHUNK_BYTES && length <= CHUNK_BYTES;
  const size = isChunk ? CHUNK_BYTES : Math.ceil(length / GRAIN_BYTES) * GRAIN_BYTES;
  let block = spare.get(size)?.pop();
  if (block === undefined) block = Buffer.allocUnsafeSlow(size);
  else spareBytes -= size;
  lent.add(block.buffer);
  return block.subarray(0, length);
}

/** Lets go of what waits for its next use. */
export function dropBlocks(): void {
  spare.clear();
  spareBytes = 0;
}

/** Gives back the memory that `data` lies in, where it came from `takeBlock`; nobody may look at it any more. */
export function giveBlock(data: Uint8Array): void {
  const { buffer } = data;
  if (!lent.delete(buffer)) return;
  const size = buffer.byteLength;
  const kept = spare.get(size);
  if (spareBytes + size > MAX_SPARE_BYTES) {
    // What is in use now takes the place of what was.
    dropBlocks();
    spareBytes = size * (kept?.length ?? 0);
    if (kept !== undefined) spare.set(size, kept);
    if (spareBytes + size > MAX_SPARE_BYTES) return;
  }
  spareBytes += size;
  if (kept === undefined) spare.set(size, [Buffer.from(buffer)]);
  else kept.push(Buffer.from(buffer));
}
