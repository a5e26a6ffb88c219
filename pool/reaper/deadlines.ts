// All the pool's deadlines in one heap with one timer. A deadline has a key; setting it again replaces it. One that
// is put off (a renewal: the common case) costs no heap operation: it is looked at again when the old time comes.
import { MAX_TIMER_MS } from "../../broker/link/after.ts";

interface Entry {
  at: number;
  key: string;
}

export class Deadlines {
  /** What is wanted by key; the heap may hold older times for the same key. */
  readonly #wanted = new Map<string, { at: number; heapAt: number }>();
  readonly #heap: Entry[] = [];
  readonly #fire: (key: string, now: number) => void;
  readonly #now: () => number;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #timerAt = Number.POSITIVE_INFINITY;
  #closed = false;

  /** `fire` is called once for each deadline that has passed; it may set new ones. */
  constructor(fire: (key: string, now: number) => void, now: () => number = Date.now) {
    this.#fire = fire;
    this.#now = now;
  }

  get size(): number {
    return this.#wanted.size;
  }

  /** Entries held, also of what was cleared or moved; bounded by twice the size. */
  get held(): number {
    return this.#heap.length;
  }

  /** `at` in ms since the epoch; Infinity clears. */
  set(key: string, at: number): void {
    if (this.#closed) return;
    if (at === Number.POSITIVE_INFINITY) {
      this.clear(key);
      return;
    }
    const known = this.#wanted.get(key);
    if (known !== undefined && known.heapAt <= at) {
      known.at = at;
      return;
    }
    this.#wanted.set(key, { at, heapAt: at });
    this.#push({ at, key });
    if (at < this.#timerAt) this.#arm();
  }

  clear(key: string): void {
    if (this.#wanted.delete(key)) this.#compact();
  }

  /** Far deadlines (a sandbox's maximum life) that were cleared must not pile up until their time comes. */
  #compact(): void {
    if (this.#heap.length < 2 * this.#wanted.size + 1024) return;
    this.#heap.length = 0;
    for (const [key, wanted] of this.#wanted) {
      wanted.heapAt = wanted.at;
      this.#push({ at: wanted.at, key });
    }
    this.#arm();
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#wanted.clear();
    this.#heap.length = 0;
  }

  /** Calls what has passed by now. Called by the timer; public so that a test can do without one. */
  run(): void {
    const now = this.#now();
    while (this.#heap[0] !== undefined && this.#heap[0].at <= now) {
      const { key, at } = this.#heap[0];
      this.#removeFirst();
      const wanted = this.#wanted.get(key);
      // Cleared, or replaced by an earlier entry that has been handled.
      if (wanted === undefined || wanted.heapAt !== at) continue;
      if (wanted.at > now) {
        wanted.heapAt = wanted.at;
        this.#push({ at: wanted.at, key });
        continue;
      }
      this.#wanted.delete(key);
      this.#fire(key, now);
    }
    this.#arm();
  }

  #arm(): void {
    clearTimeout(this.#timer);
    const next = this.#heap[0];
    this.#timerAt = next?.at ?? Number.POSITIVE_INFINITY;
    if (next === undefined || this.#closed) return;
    const wait = Math.min(Math.max(0, next.at - this.#now()), MAX_TIMER_MS);
    this.#timer = setTimeout(() => this.run(), wait);
  }

  #push(entry: Entry): void {
    const heap = this.#heap;
    let i = heap.length;
    heap.push(entry);
    while (i > 0) {
      const parent = (i - 1) >> 1;
      const above = heap[parent];
      if (above === undefined || above.at <= entry.at) break;
      heap[i] = above;
      i = parent;
    }
    heap[i] = entry;
  }

  #removeFirst(): void {
    const heap = this.#heap;
    const last = heap.pop();
    if (last === undefined || heap.length === 0) return;
    let i = 0;
    for (;;) {
      let child = 2 * i + 1;
      const left = heap[child];
      if (left === undefined) break;
      const right = heap[child + 1];
      let smaller = left;
      if (right !== undefined && right.at < left.at) {
        child++;
        smaller = right;
      }
      if (smaller.at >= last.at) break;
      heap[i] = smaller;
      i = child;
    }
    heap[i] = last;
  }
}
