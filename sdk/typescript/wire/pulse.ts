// One timer for all that waits on a connection: deadlines and silence are looked at twice a second, so that a
// command costs no timer of its own.

const TICK_MS = 500;

export interface Waiting {
  onTick(now: number): void;
  /** The connection was lost and is back: what was published meanwhile, either way, may be gone. */
  onReconnect(): void;
}

export class Pulse {
  readonly #waiting = new Set<Waiting>();
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  add(waiting: Waiting): void {
    this.#waiting.add(waiting);
    // Keeps the process alive, since something is waited for.
    if (!this.#closed) this.#timer ??= setInterval(() => this.#tick(), TICK_MS);
  }

  /** The connection is closed for good, which all that waited on it has been told: nothing keeps the process alive. */
  close(): void {
    this.#closed = true;
    clearInterval(this.#timer);
  }

  /** How many wait on this connection. */
  get waiting(): number {
    return this.#waiting.size;
  }

  delete(waiting: Waiting): void {
    this.#waiting.delete(waiting);
  }

  reconnected(): void {
    for (const waiting of [...this.#waiting]) waiting.onReconnect();
  }

  #tick(): void {
    // Stopped here and not in `delete`, so that commands one after another share one timer.
    if (this.#waiting.size === 0) {
      clearInterval(this.#timer);
      this.#timer = undefined;
    }
    const now = Date.now();
    for (const waiting of [...this.#waiting]) waiting.onTick(now);
  }
}
