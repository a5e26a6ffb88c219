// Flow control: what may be on its way at once on this connection, and which reader's credit is whose.
import type { OutputStream } from "../contract/index.ts";

/** Of one connection, all streams together; so that many readers with much credit do not overrun the server, which
 * drops a connection that it cannot write 64 MB to. What a reader needs to go on it gets beyond that (`Window.least`):
 * of some readers that take nothing, left without a word or only slow, 16 MiB would be used up, and all others stand
 * still for as long as they are waited for. */
export const MAX_IN_FLIGHT_BYTES = 16 * 1024 * 1024;
/** How many times the budget may be on its way beyond it, each reader's least; then a reader has only */
const SHARES = 2;
const LAST_SHARE_BYTES = 16 * 1024;

export type StreamName = OutputStream | "data";

export interface CreditTaker {
  /** `received` and `until` are offsets; doubled and old ones do nothing. */
  credit(stream: StreamName, received: number, until: number): void;
  /** It reads no more, and waits for no answer. */
  left(): void;
  /** The connection was lost and is back: what was on its way may not have arrived. */
  returned?(): void;
}

export class Flow {
  readonly #max: number;
  readonly #readers = new Map<string, CreditTaker>();
  #waiting = new Set<() => void>();
  #used = 0;

  constructor(max: number) {
    this.#max = max;
  }

  get used(): number {
    return this.#used;
  }

  /** Takes up to `wanted` bytes of the budget for a stream; 0 where it is used up, and then `again` is called when some
   * is back. In all so never more is on its way than three times the budget and 16 KiB a reader. */
  take(wanted: number, { least, inFlight }: Window, again: () => void): number {
    const beyond = Math.max(this.#max * (1 + SHARES) - this.#used, LAST_SHARE_BYTES - inFlight);
    const granted = Math.min(wanted, Math.max(this.#max - this.#used, Math.min(least - inFlight, beyond)));
    if (granted <= 0) {
      this.#waiting.add(again);
      return 0;
    }
    this.#used += granted;
    return granted;
  }

  give(bytes: number): void {
    this.#used -= bytes;
    if (this.#waiting.size === 0 || bytes <= 0 || this.#used >= this.#max) return;
    // Each gets its turn in the order in which it came; who is still short enlists again.
    const waiting = this.#waiting;
    this.#waiting = new Set();
    for (const again of waiting) again();
  }

  forget(again: () => void): void {
    this.#waiting.delete(again);
  }

  open(token: string, reader: CreditTaker): void {
    this.#readers.set(token, reader);
  }

  close(token: string, reader: CreditTaker): void {
    if (this.#readers.get(token) === reader) this.#readers.delete(token);
  }

  credit(token: string, stream: StreamName, received: number, until: number): void {
    this.#readers.get(token)?.credit(stream, received, until);
  }

  left(token: string): void {
    this.#readers.get(token)?.left();
  }

  returned(): void {
    for (const reader of [...this.#readers.values()]) reader.returned?.();
  }
}

/** How far one stream of one reader is. */
export class Window {
  /** Offset up to which it was sent. */
  sent: number;
  /** Offset up to which it may be sent. */
  until: number;
  /** Offset up to which the reader has said that it has it. */
  received: number;
  /** What may be on its way whatever others have: readers say how far they are when they have half of their credit, and
   * go on by themselves then. */
  readonly least: number;
  /** Offset up to which it no longer counts against the connection's budget. */
  #settled: number;

  constructor(from: number, credit: number) {
    this.sent = from;
    this.received = from;
    this.#settled = from;
    this.until = from + credit;
    this.least = Math.ceil(credit / 2);
  }

  /** What it has of the budget. */
  get inFlight(): number {
    return this.sent - this.#settled;
  }

  /** Passes over bytes that will never be sent. */
  skip(bytes: number): void {
    this.sent += bytes;
    this.received += bytes;
    this.#settled += bytes;
    this.until += bytes;
  }

  /** Answers how many bytes the budget gets back. A reader cannot have what was not sent. */
  credit(received: number, until: number): number {
    if (until > this.until) this.until = until;
    this.received = Math.max(this.received, Math.min(received, this.sent));
    return this.#settle(this.received);
  }

  /** What is on its way no longer keeps others from the budget; answers how much that is. */
  writeOff(): number {
    return this.#settle(this.sent);
  }

  /** What the reader has not said that it has is to be sent again; answers how many bytes the budget gets back. */
  rewind(): number {
    const { inFlight } = this;
    this.sent = this.received;
    this.#settled = this.received;
    return inFlight;
  }

  #settle(offset: number): number {
    const back = Math.max(0, offset - this.#settled);
    this.#settled += back;
    return back;
  }
}

/** The token of an answer subject `rep.v1.<tenant>.<sandbox>.<user>.<token>`, by which its reader gives credit. */
export function tokenOf(subject: string): string {
  let at = -1;
  for (let dots = 0; dots < 5; dots++) at = subject.indexOf(".", at + 1);
  return subject.slice(at + 1);
}
