// The ids of commands of which nothing else is known any more: one that comes again is refused, since it has run.
//
// Each id is remembered by 63 bits of it and of what it hashes to, some tens of thousands of them in two tables, of which the older is
// dropped when the newer is full. Of what was dropped only a time remains: an id that is not newer may be one of them.
// That time is never later than the daemon's own when the command began, since ids have their clients' clocks: one
// client's that is ahead would otherwise have the new ids of all others refused.
import { uuidV7Time } from "../contract/index.ts";

const FIRST_SLOTS = 1024;
/** 2^32 divided by the golden ratio (Knuth, The Art of Computer Programming 6.4): spreads what differs little. */
const GOLDEN = 0x9e3779b1;

/** A set of pairs of 32-bit words, without removal: open addressing, at most half full. */
class Table {
  #slots = new Uint32Array(2 * FIRST_SLOTS);
  size = 0;
  /** The newest time of an id in it, ms since the epoch. */
  newest = 0;

  has(high: number, low: number): boolean {
    const at = this.#find(this.#slots, high, low);
    return this.#slots[at] !== 0;
  }

  add(high: number, low: number, time: number): void {
    this.newest = Math.max(this.newest, time);
    if (this.size * 4 >= this.#slots.length) this.#grow();
    const at = this.#find(this.#slots, high, low);
    if (this.#slots[at] !== 0) return;
    this.#slots[at] = high;
    this.#slots[at + 1] = low;
    this.size++;
  }

  /** Where it stands, or the free place where it would. The first word of an id is never 0. */
  #find(slots: Uint32Array, high: number, low: number): number {
    let at = ((Math.imul(low ^ high, GOLDEN) >>> 0) * 2) % slots.length;
    while (slots[at] !== 0 && (slots[at] !== high || slots[at + 1] !== low)) at = (at + 2) % slots.length;
    return at;
  }

  #grow(): void {
    const more = new Uint32Array(this.#slots.length * 2);
    for (let i = 0; i < this.#slots.length; i += 2) {
      const [high = 0, low = 0] = [this.#slots[i], this.#slots[i + 1]];
      if (high === 0) continue;
      const at = this.#find(more, high, low);
      more[at] = high;
      more[at + 1] = low;
    }
    this.#slots = more;
  }
}

const hex = (id: string, from: number, to: number): number => Number.parseInt(id.slice(from, to), 16);

/** The parts of `tttttttt-tttt-7ccc-vrrr-rrrrrrrrrrrr` in two words: with time and counter, since there are generators whose
 * last 62 bits are always the same; and never 0. */
function wordsOf(id: string): [high: number, low: number] {
  const time = Math.imul(hex(id, 0, 8), GOLDEN) ^ ((hex(id, 9, 13) << 12) | hex(id, 15, 18));
  const high = (hex(id, 19, 23) << 16) | hex(id, 24, 28);
  return [((high ^ time) | 0x8000_0000) >>> 0, hex(id, 28, 36)];
}

export class Forgotten {
  readonly #limit: number;
  #newer = new Table();
  #older = new Table();
  /** The newest time of what is in neither, ms since the epoch. */
  #before = -1;

  /** `limit`: ids in a table; 32,768 take 1 MiB when both are full. */
  constructor(limit: number) {
    this.#limit = limit;
  }

  /** `begunAt`: by the daemon's clock, ms since the epoch. */
  add(id: string, begunAt: number): void {
    if (this.#newer.size >= this.#limit) {
      this.#before = Math.max(this.#before, this.#older.newest);
      this.#older = this.#newer;
      this.#newer = new Table();
    }
    const [high, low] = wordsOf(id);
    this.#newer.add(high, low, Math.min(uuidV7Time(id), begunAt));
  }

  /** `yes`: it is one of them; `perhaps`: it is as old as those of which only their time is known. */
  has(id: string): "yes" | "perhaps" | "no" {
    const [high, low] = wordsOf(id);
    if (this.#newer.has(high, low) || this.#older.has(high, low)) return "yes";
    return uuidV7Time(id) <= this.#before ? "perhaps" : "no";
  }
}
