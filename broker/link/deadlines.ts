// Deadlines of many requests with one timer: setting and clearing one costs a few pointers. Requests of one time limit
// stand in one list, which is in order of their deadlines because it is in order of their starts.

import { MAX_TIMER_MS } from "./after.ts";

export interface Deadline {
  dueMs: number;
  list: DeadlineList | undefined;
  before: Deadline | undefined;
  after: Deadline | undefined;
  expired(): void;
}

interface DeadlineList {
  limitMs: number;
  first: Deadline | undefined;
  last: Deadline | undefined;
}

export class Deadlines {
  readonly #lists = new Map<number, DeadlineList>();
  readonly #now: () => number;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #timerDueMs = Number.POSITIVE_INFINITY;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** (Re)starts `deadline`, to expire in `limitMs`. */
  set(deadline: Deadline, limitMs: number): void {
    this.clear(deadline);
    let list = this.#lists.get(limitMs);
    if (list === undefined) {
      list = { limitMs, first: undefined, last: undefined };
      this.#lists.set(limitMs, list);
    }
    deadline.dueMs = this.#now() + limitMs;
    deadline.list = list;
    deadline.before = list.last;
    if (list.last === undefined) list.first = deadline;
    else list.last.after = deadline;
    list.last = deadline;
    if (deadline.dueMs < this.#timerDueMs) this.#arm(deadline.dueMs);
  }

  /** As `set`, where it expires sooner by that; whether it does. */
  sooner(deadline: Deadline, limitMs: number): boolean {
    if (this.#now() + limitMs >= deadline.dueMs) return false;
    this.set(deadline, limitMs);
    return true;
  }

  /** Takes `deadline` back; nothing where it is not set. */
  clear(deadline: Deadline): void {
    const { list, before, after } = deadline;
    if (list === undefined) return;
    if (before === undefined) list.first = after;
    else before.after = after;
    if (after === undefined) list.last = before;
    else after.before = before;
    deadline.list = deadline.before = deadline.after = undefined;
    // An empty list stays until the timer next looks: requests of one limit come one after the other.
  }

  /** Forgets all. */
  close(): void {
    this.#lists.clear();
    clearTimeout(this.#timer);
    this.#timerDueMs = Number.POSITIVE_INFINITY;
  }

  #arm(dueMs: number): void {
    clearTimeout(this.#timer);
    this.#timerDueMs = dueMs;
    const waitMs = Math.min(MAX_TIMER_MS, Math.max(1, Math.ceil(dueMs - this.#now())));
    this.#timer = setTimeout(() => this.#sweep(), waitMs);
  }

  #sweep(): void {
    this.#timerDueMs = Number.POSITIVE_INFINITY;
    const now = this.#now();
    const due: Deadline[] = [];
    let nextMs = Number.POSITIVE_INFINITY;
    for (const list of this.#lists.values()) {
      while (list.first !== undefined && list.first.dueMs <= now) {
        due.push(list.first);
        this.clear(list.first);
      }
      if (list.first === undefined) this.#lists.delete(list.limitMs);
      else nextMs = Math.min(nextMs, list.first.dueMs);
    }
    if (nextMs !== Number.POSITIVE_INFINITY) this.#arm(nextMs);
    // A late look finds those of several lists at once.
    due.sort((a, b) => a.dueMs - b.dueMs);
    for (const deadline of due) deadline.expired();
  }
}
