// For how long the server has been away, and from when on it counts as gone.
import { ConnectionError } from "../contract/core.ts";

const TICK_MS = 500;

/** Counted by ticks, not by the clock: a program that stood still has not tried to come back meanwhile. */
export class Absence {
  readonly #goneAfterMs: number;
  readonly #onGone: () => void;
  #awayMs = 0;
  #timer: NodeJS.Timeout | undefined;

  /** `onGone` is called when the server has been away for `goneAfterMs`; once an absence. */
  constructor(goneAfterMs: number, onGone: () => void) {
    this.#goneAfterMs = goneAfterMs;
    this.#onGone = onGone;
  }

  /** 0 while the server is there. */
  get awayMs(): number {
    return this.#awayMs;
  }

  /** What requests fail with once it is gone; undefined before. */
  get error(): ConnectionError | undefined {
    if (this.#awayMs < this.#goneAfterMs) return undefined;
    const message = `the server has been away for ${Math.round(this.#awayMs / 1000)} s`;
    return new ConnectionError(message, { reason: "server_gone" });
  }

  begin(): void {
    this.#timer ??= setInterval(() => {
      const before = this.#awayMs;
      this.#awayMs += TICK_MS;
      if (before < this.#goneAfterMs && this.#awayMs >= this.#goneAfterMs) this.#onGone();
    }, TICK_MS);
  }

  end(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#awayMs = 0;
  }
}
