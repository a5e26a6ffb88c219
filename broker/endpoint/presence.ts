// Whether whoever holds a terminal is still there: a client that was killed says nothing any more.
import { Alarm, type Deadlines } from "./alarm.ts";

/** Parts of the limit, all of which must pass in silence. One alone may be the daemon's own: where it was frozen, its timers
 * are due before what came meanwhile is read. */
const PARTS = 3;

export class Presence {
  readonly #deadlines: Pick<Deadlines, "set" | "clear">;
  readonly #partMs: number;
  readonly #alarm = new Alarm(() => this.#silence());
  readonly #gone: () => void;
  #silent = 0;

  /** Calls `gone` once when nothing was heard for `limitMs`. */
  constructor(deadlines: Pick<Deadlines, "set" | "clear">, limitMs: number, gone: () => void) {
    this.#deadlines = deadlines;
    this.#partMs = Math.ceil(limitMs / PARTS);
    this.#gone = gone;
    this.heard();
  }

  heard(): void {
    this.#silent = 0;
    this.#deadlines.set(this.#alarm, this.#partMs);
  }

  end(): void {
    this.#deadlines.clear(this.#alarm);
  }

  #silence(): void {
    if (++this.#silent === PARTS) this.#gone();
    else this.#deadlines.set(this.#alarm, this.#partMs);
  }
}
