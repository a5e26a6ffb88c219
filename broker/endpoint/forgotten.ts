// The ids of commands of which nothing else is known any more: one that comes again is refused, since it has run.
//
// Each id is remembered by 64 of its random bits, some tens of thousands of them in two tables, of which the older is
// dropped when the newer is full. Of what was dropped only a time remains: an id that is not newer may be one of them.
// That time is never later than the daemon's own when the command began, since ids have their clients' clocks: one
// client's that is ahead would otherwise have the new ids of all others refused.
import { uuidV7Time } from "../contract/index.ts";

const FIRST_SLOTS = 1024;

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

  /** Where it stands, or the free place where it would. The first word of an id is never 0: it has the variant's bit. */
  #find(slots: Uint32Array, high: number, low: number): number {
    let at = (low * 2) % slots.length;
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

/** `xxxxxxxx-xxxx-7xxx-Vxxx-xxxxxxxxxxxx`: V and what follows, of which V's high bit is set. */
const highOf = (id: string): number => Number.parseInt(id.slice(19, 23) + id.slice(24, 28), 16);
const lowOf = (id: string): number => Number.parseInt(id.slice(28), 16);

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
    this.#newer.add(highOf(id), lowOf(id), Math.min(uuidV7Time(id), begunAt));
  }

  /** `yes`: it is one of them; `perhaps`: it is as old as those of which only their time is known. */
  has(id: string): "yes" | "perhaps" | "no" {
    const [high, low] = [highOf(id), lowOf(id)];
    if (this.#newer.has(high, low) || this.#older.has(high, low)) return "yes";
    return uuidV7Time(id) <= this.#before ? "perhaps" : "no";
  }
}
