// How far those who write to one command's stdin have come, so that what one sends again is told from another's bytes.
import { InvalidRequestError, MAX_STDIN_WRITERS } from "../contract/index.ts";

/** Stretches of the bytes that came without a writer's name, known apart: others wrote between them. */
const MAX_STRETCHES = 64;
/** Of a command that has ended: thousands of those are remembered. */
const ENDED = 8;

export class StdinOffsets {
  /** Of all. */
  #total = 0;
  /** Bytes of each by name, in the order in which they last wrote. */
  readonly #writers = new Map<string, number>();
  /** Where among all bytes those without a name are: ascending, not empty, not adjacent. */
  readonly #nameless: { from: number; to: number }[] = [];
  /** Before this it is no longer known which they are. */
  #knownFrom = 0;

  /** Of this writer; without a name of all, as those count who know of no others. */
  received(writer: string | undefined): number {
    return writer === undefined ? this.#total : (this.#writers.get(writer) ?? 0);
  }

  /** How many of these bytes, the first ones, were taken before. Throws InvalidRequestError (`offset`) where some before them
   * are missing, and where others have written in their place. */
  repeated(writer: string | undefined, offset: number, length: number): number {
    const received = this.received(writer);
    if (offset > received) {
      const whose = writer === undefined ? "" : " of this writer";
      throw refused(`${offset} leaves a gap; ${received} bytes${whose} were received`);
    }
    const until = Math.min(offset + length, received);
    if (writer === undefined && length > 0 && this.#isOthers(offset, until))
      throw refused(`others have written since ${offset}; ${received} bytes were received`);
    return until - offset;
  }

  /** Whether a writer with a name wrote any of them; false where that is not known. */
  #isOthers(offset: number, until: number): boolean {
    const from = Math.max(offset, this.#knownFrom);
    return from < until && !this.#nameless.some((own) => own.from <= from && until <= own.to);
  }

  /** So many more were taken. */
  add(writer: string | undefined, length: number): void {
    if (length === 0) return;
    if (writer === undefined) this.#addNameless(length);
    else this.#addNamed(writer, length);
    this.#total += length;
  }

  #addNamed(writer: string, length: number): void {
    const received = this.received(writer) + length;
    this.#writers.delete(writer);
    this.#writers.set(writer, received);
    this.#keepWriters(MAX_STDIN_WRITERS);
  }

  #addNameless(length: number): void {
    const to = this.#total + length;
    const last = this.#nameless.at(-1);
    if (last?.to === this.#total) last.to = to;
    else this.#nameless.push({ from: this.#total, to });
    if (this.#nameless.length > MAX_STRETCHES) this.#knownFrom = this.#nameless.shift()?.to ?? 0;
  }

  #keepWriters(most: number): void {
    for (const writer of this.#writers.keys()) {
      if (this.#writers.size <= most) return;
      this.#writers.delete(writer);
    }
  }

  /** The command has ended: those who wrote last may still ask. */
  slim(): void {
    this.#keepWriters(ENDED);
  }
}

const refused = (why: string) => new InvalidRequestError(`offset: ${why}`, { field: "offset" });
