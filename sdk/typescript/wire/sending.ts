// Uploads: the parts of a byte stream, a few in flight, each answered; what got lost is sent again from the first part
// that is not known to have arrived, also while the source gives nothing. Memory is the window and no more.
import { InternalError, NotFoundError } from "../../../broker/contract/index.ts";
import { mayBeLost, refusesOffset } from "./lost.ts";
import { PAUSE, type Part, partsOf, type Source, takePieces } from "./parts.ts";
import { pause, stopWith } from "./pause.ts";

export interface PartOptions {
  /** Sends one part once; resolves when it was accepted. */
  send: (part: Part) => Promise<unknown>;
  /** Give up when nothing was accepted for this long; ms. */
  giveUpMs?: number;
  signal?: AbortSignal | undefined;
  /** What the source has given is sent whenever it lets one wait: somebody may answer it. */
  live?: boolean;
}

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

/** Sends all; resolves to the number of bytes when the last part was accepted. What ends the sending (the signal, or a
 * part that was refused) is told at once, whatever the source is waiting for. */
export async function sendParts(source: Source, options: PartOptions): Promise<number> {
  const { signal, stop, end } = stopWith(options.signal);
  const sending = new Sending({ ...options, signal }, stop);
  try {
    const pieces = takePieces<string | Uint8Array, typeof PAUSE>(
      source,
      signal,
      options.live === true ? PAUSE : undefined,
    );
    for await (const part of partsOf(pieces)) {
      await sending.room();
      sending.add(part);
    }
    return await sending.all();
  } catch (error) {
    // What stopped the source, not what that says of being stopped.
    sending.throwIfFailed();
    throw error;
  } finally {
    end();
  }
}

class Sending {
  readonly #options: PartOptions;
  readonly #stop: () => void;
  readonly #inFlight: InFlight[] = [];
  #window = WINDOW;
  #accepted = false;
  /** Bytes, once the part that is marked as the last was accepted. */
  #whole: number | undefined;
  #failure: Settled | undefined;
  #settling = false;
  /** All in flight are to go again: none goes before them. */
  #again = false;
  /** Of who waits: one at a time. */
  #stepped: () => void = () => undefined;

  /** `stop` is called at the first failure. */
  constructor(options: PartOptions, stop: () => void) {
    this.#options = options;
    this.#stop = stop;
  }

  throwIfFailed(): void {
    if (this.#failure !== undefined) throw this.#failure.error;
  }

  /** Resolves when one more may be added; throws what ended the sending. */
  async room(): Promise<void> {
    await this.#until(() => !this.#again && this.#inFlight.length < this.#window);
  }

  add(part: Part): void {
    this.#inFlight.push({ part, sentAt: Date.now(), answer: this.#send(part) });
    if (!this.#settling) void this.#settle();
  }

  /** Resolves to the number of bytes when all are accepted; throws what ended the sending. */
  async all(): Promise<number> {
    await this.#until(() => this.#inFlight.length === 0);
    // What ends the source early is told above: nothing else may look as if all had been sent.
    if (this.#whole === undefined) throw new InternalError("the sending ended without its last part");
    return this.#whole;
  }

  async #until(holds: () => boolean): Promise<void> {
    for (this.throwIfFailed(); !holds(); this.throwIfFailed())
      await new Promise<void>((go) => {
        this.#stepped = go;
      });
  }

  #fail(error: unknown): void {
    if (this.#failure !== undefined) return;
    this.#failure = { error };
    this.#stop();
    this.#stepped();
  }

  /** Of what may not go again the sending fails at once. */
  #send(part: Part): Promise<Settled> {
    const early = !this.#accepted;
    return this.#options.send(part).then<Settled, Settled>(
      () => {
        this.#accepted = true;
        return {};
      },
      (error: unknown) => {
        if (!(mayBeLost(error) || isGap(error, early))) this.#fail(error);
        return { error };
      },
    );
  }

  /** Until nothing is in flight; beside the source, which may give nothing for long. */
  async #settle(): Promise<void> {
    this.#settling = true;
    for (let oldest = this.#inFlight[0]; oldest !== undefined; oldest = this.#inFlight[0]) {
      if (!(await this.#settleOldest(oldest))) break;
      this.#inFlight.shift();
      const { offset, data, last } = oldest.part;
      if (last) this.#whole = offset + data.length;
      const soon = Date.now() - oldest.sentAt < SOON_MS;
      this.#window = soon ? Math.min(this.#window + 1, MAX_WINDOW) : WINDOW;
      this.#stepped();
    }
    this.#settling = false;
  }

  /** Whether it was accepted, or else the sending has failed. */
  async #settleOldest(oldest: InFlight): Promise<boolean> {
    const { giveUpMs = GIVE_UP_MS, signal } = this.#options;
    const giveUpAt = Date.now() + giveUpMs;
    for (let waitMs = 50, gaps = 0; ; waitMs = Math.min(waitMs * 2, 1_000)) {
      const { error } = await oldest.answer;
      if (this.#failure !== undefined) return false;
      if (error === undefined) return true;
      // Lost, or refused for a gap: of all else the sending has failed by now.
      if (!mayBeLost(error)) gaps += 1;
      if (gaps > MAX_GAPS || Date.now() > giveUpAt || signal?.aborted === true) {
        this.#fail(error);
        return false;
      }
      await this.#goAgain(waitMs);
    }
  }

  /** Those behind one that was lost were refused for the gap, which is no fault of theirs: all go again, in order. */
  async #goAgain(waitMs: number): Promise<void> {
    this.#again = true;
    await Promise.all(this.#inFlight.map((each) => each.answer));
    await pause(waitMs, this.#options.signal);
    this.#again = false;
    if (this.#failure !== undefined) return;
    for (const each of this.#inFlight) each.answer = this.#send(each.part);
    this.#stepped();
  }
}

/** Whether a part was refused since one before it is not there: also since the transfer is not, whose first part begins it.
 * Where it was sent when a part had been accepted (not `early`), the transfer was there, and has been given up: what it had is
 * lost. */
function isGap(error: unknown, early: boolean): boolean {
  if (error instanceof NotFoundError) return early && error.field === "transfer";
  return refusesOffset(error);
}
