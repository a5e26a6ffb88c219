// For how long the server has been away, and from when on it counts as gone.
import { ConnectionError } from "../contract/core.ts";

const TICK_MS = 500;

/** Counted by ticks, not by the clock: a program that stood still has not tried to come back meanwhile. */
export class Absence {
  readonly #goneAfterMs: number;
  readonly #goneHandlers = new Set<() => void>();
  readonly #returns: (() => void)[] = [];
  #awayMs = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(goneAfterMs: number) {
    this.#goneAfterMs = goneAfterMs;
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

  /** Calls `handle` when the server has been away for `goneAfterMs`; once an absence. Returns what takes it back. */
  onGone(handle: () => void): () => void {
    this.#goneHandlers.add(handle);
    return () => this.#goneHandlers.delete(handle);
  }

  /** Until the server is back, or counts as gone, or is not waited for any more. */
  over(): Promise<void> {
    if (this.error !== undefined) return Promise.resolve();
    return new Promise((back) => this.#returns.push(back));
  }

  begin(): void {
    this.#timer ??= setInterval(() => {
      const before = this.#awayMs;
      this.#awayMs += TICK_MS;
      if (before < this.#goneAfterMs && this.#awayMs >= this.#goneAfterMs) this.#gone();
    }, TICK_MS);
  }

  end(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#awayMs = 0;
    this.#release();
  }

  #gone(): void {
    this.#release();
    for (const handle of [...this.#goneHandlers]) handle();
  }

  #release(): void {
    for (const back of this.#returns.splice(0)) back();
  }
}
