// Uploads: a byte stream in numbered parts, a few in flight, each answered; what got lost is sent again from the
// first part that is not known to have arrived. Memory is the window and no more.
import { InvalidRequestError, MAX_CHUNK_BYTES } from "../../../broker/contract/index.ts";
import { bytesOf } from "../arguments.ts";
import { mayBeLost } from "./lost.ts";
import { pause, stopWith, unlessAborted } from "./pause.ts";

export interface Part {
  offset: number;
  data: Uint8Array;
  last: boolean;
}

export interface PartOptions {
  /** Sends one part once; resolves when it was accepted. */
  send: (part: Part) => Promise<unknown>;
  /** Give up when nothing was accepted for this long; ms. */
  giveUpMs?: number;
  signal?: AbortSignal | undefined;
  /** What the source has given is sent whenever it lets one wait: somebody may answer it. */
  live?: boolean;
}

/** The source has nothing more at the moment. */
const PAUSE = Symbol("pause");

export type Source = AsyncIterable<string | Uint8Array> | Iterable<Uint8Array>;
type Settled = { error?: unknown };
interface InFlight {
  part: Part;
  sentAt: number;
  answer: Promise<Settled>;
}

/** As many more as are needed where all ends are busy; where parts take their time, fewer are in danger of being late. */
const WINDOW = 4;
const MAX_WINDOW = 8;
const SOON_MS = 500;
const GIVE_UP_MS = 60_000;
/** A part that overtook the one before it, which came later, is refused for the gap; more often than this in a row it is
 * the other side that has lost what it had. */
const MAX_GAPS = 4;

/** The source's pieces. Where `signal` aborts this throws CanceledError at once, also while the next piece is waited for:
 * the source is told so (its iterator's `return`), and not waited for. */
export const piecesUntil = <T>(
  source: AsyncIterable<T> | Iterable<T>,
  signal: AbortSignal,
): AsyncGenerator<T, void, void> => takePieces<T, never>(source, signal);

/** The same, with `atPause` wherever the source lets one wait. */
async function* takePieces<T, P>(
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

/** Sends all; resolves to the number of bytes when the last part was accepted. What ends the sending (the signal, or a
 * part that was refused) is told at once, whatever the source is waiting for. */
export async function sendParts(source: Source, options: PartOptions): Promise<number> {
  const inFlight: InFlight[] = [];
  const { live = false } = options;
  const { signal, stop, end } = stopWith(options.signal);
  let refused = false;
  const refuse = ({ error }: Settled): void => {
    if (error === undefined || mayGoAgain(error)) return;
    refused = true;
    stop();
  };
  let total = 0;
  let window = WINDOW;
  try {
    const pieces = takePieces<string | Uint8Array, typeof PAUSE>(source, signal, live ? PAUSE : undefined);
    for await (const part of partsOf(pieces)) {
      if (inFlight.length >= window) {
        const tookMs = await settleOldest(inFlight, options);
        window = tookMs < SOON_MS ? Math.min(window + 1, MAX_WINDOW) : WINDOW;
      }
      while (inFlight.length >= window) await settleOldest(inFlight, options);
      const sent = launch(part, options);
      void sent.answer.then(refuse);
      inFlight.push(sent);
      total = part.offset + part.data.length;
    }
  } catch (error) {
    if (!refused) throw error;
  } finally {
    end();
  }
  while (inFlight.length > 0) await settleOldest(inFlight, options);
  return total;
}

const isGap = (error: unknown): boolean => error instanceof InvalidRequestError && error.field === "offset";
const mayGoAgain = (error: unknown): boolean => mayBeLost(error) || isGap(error);

function launch(part: Part, { send }: PartOptions): InFlight {
  const answer = send(part).then(
    () => ({}),
    (error: unknown) => ({ error }),
  );
  return { part, sentAt: Date.now(), answer };
}

/** Answers how long the oldest took, ms. */
async function settleOldest(inFlight: InFlight[], options: PartOptions): Promise<number> {
  const giveUpAt = Date.now() + (options.giveUpMs ?? GIVE_UP_MS);
  for (let waitMs = 50, gaps = 0; ; waitMs = Math.min(waitMs * 2, 1_000)) {
    const { error } = (await inFlight[0]?.answer) ?? {};
    if (error === undefined) {
      const settled = inFlight.shift();
      return settled === undefined ? 0 : Date.now() - settled.sentAt;
    }
    const gap = isGap(error) && ++gaps <= MAX_GAPS;
    if (!(mayBeLost(error) || gap) || Date.now() > giveUpAt || options.signal?.aborted === true) throw error;
    // Those behind it were refused for the gap, which is no fault of theirs: all go again, in order.
    await Promise.all(inFlight.map((each) => each.answer));
    await pause(waitMs, options.signal);
    for (const each of inFlight) each.answer = launch(each.part, options).answer;
  }
}
