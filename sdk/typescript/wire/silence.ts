// Who waits for a sandbox that says nothing asks now and then whether it is there.
import type { Box } from "./box.ts";
import type { Waiting } from "./pulse.ts";

/** Nothing heard for this long: the next word of the pool's is heard too. */
const LISTEN_MS = 1_000;
/** Nothing heard for this long: the first look; it is there: look again after this long; it is not: soon. */
const FIRST_QUIET_MS = 5_000;
const QUIET_MS = 15_000;
const AWAY_QUIET_MS = 1_000;

type Asked = Pick<Box, "inquire" | "listen" | "waitingBegins" | "waitingEnds">;

/** From its making to its `end` somebody waits for the sandbox. */
export class Silence implements Waiting {
  readonly #box: Asked;
  readonly #begunAt = Date.now();
  /** Called when it was cut off and is back: what it published meanwhile may be lost. */
  readonly #onBack: () => void;
  #away = false;
  #ended = false;
  #lookAt: number;

  constructor(box: Asked, onBack: () => void = () => undefined) {
    this.#box = box;
    box.waitingBegins();
    this.#onBack = onBack;
    this.#lookAt = Date.now() + FIRST_QUIET_MS;
  }

  heard(now: number): void {
    this.#lookAt = now + FIRST_QUIET_MS;
  }

  end(): void {
    if (!this.#ended) this.#box.waitingEnds();
    this.#ended = true;
  }

  onReconnect(): void {}

  onTick(now: number): void {
    if (now - this.#begunAt >= LISTEN_MS) this.#box.listen();
    if (now < this.#lookAt) return;
    this.#lookAt = now + QUIET_MS;
    void this.#inquire();
  }

  async #inquire(): Promise<void> {
    const found = await this.#box.inquire();
    if (found === "here" && this.#away) this.#onBack();
    this.#away = found === "away";
    if (this.#away) this.#lookAt = Date.now() + AWAY_QUIET_MS;
  }
}
