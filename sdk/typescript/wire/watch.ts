// Guards one stream of answers: the caller's signal, the deadline, the sandbox's loss and silence all end in `stop`,
// which closes the stream that is being read.
import {
  CanceledError,
  ConnectionError,
  DeadlineError,
  fromWire,
  type SandmeshError,
  type Started,
} from "../../../broker/contract/index.ts";
import type { AnswerStream } from "../../../broker/link/link.ts";
import type { Box } from "./box.ts";
import type { Waiting } from "./pulse.ts";

/** The link's own time limit for a stream that a watch guards: above any silence, which is the watch's to judge. */
export const LINK_TIMEOUT_MS = 24 * 3600 * 1000;
/** No frame for this long: find out whether the sandbox is there. */
const FIRST_QUIET_MS = 5_000;
const QUIET_MS = 15_000;
/** No frame for this long: ask again by the id, in case the answer was lost on the daemon's side. */
const REASK_MS = 60_000;
/** A server that restarts, or fails over, is back well within this; who waits longer waits for one that is gone. */
const SERVER_GONE_MS = 60_000;

export interface WatchOptions {
  signal: AbortSignal | undefined;
  /** Milliseconds since the epoch. */
  deadlineAt: number | undefined;
  /** What the deadline and the loss say about the command. */
  started: () => Started;
}

export class Watch implements Waiting {
  readonly #box: Box;
  readonly #options: WatchOptions;
  readonly #unsubscribe: () => void;
  readonly #abort = () => this.stop(canceled(this.#options));
  #stream: AnswerStream | undefined;
  #failure: SandmeshError | undefined;
  #heardAt = Date.now();
  #inquiredAt = 0;
  #away = false;

  /** Throws at once where the sandbox is lost or the signal has aborted already. */
  constructor(box: Box, options: WatchOptions) {
    this.#box = box;
    this.#options = options;
    if (box.lifeline.error !== undefined) throw withStarted(box.lifeline.error, options.started());
    if (options.signal?.aborted === true) throw canceled(options);
    this.#unsubscribe = box.lifeline.onLost((error) => this.stop(withStarted(error, options.started())));
    options.signal?.addEventListener("abort", this.#abort);
    box.pulse.add(this);
  }

  /** The stream that is closed when something stops, or is to be asked again. */
  reading(stream: AnswerStream): void {
    this.#stream = stream;
    this.heard();
  }

  heard(): void {
    this.#heardAt = Date.now();
    this.#inquiredAt = 0;
  }

  throwIfStopped(): void {
    if (this.#failure !== undefined) throw this.#failure;
  }

  stop(error: SandmeshError): void {
    this.#failure ??= error;
    this.#stream?.close();
  }

  end(): void {
    this.#unsubscribe();
    this.#options.signal?.removeEventListener("abort", this.#abort);
    this.#box.pulse.delete(this);
    this.#stream?.close();
  }

  onReconnect(): void {
    this.#stream?.close();
  }

  onTick(now: number): void {
    const { deadlineAt, started } = this.#options;
    if (deadlineAt !== undefined && now >= deadlineAt) {
      this.stop(
        new DeadlineError(`sandbox ${this.#box.id} did not answer in time`, {
          sandbox: this.#box.id,
          started: started(),
        }),
      );
      return;
    }
    if (this.#box.caller.awayMs(now) >= SERVER_GONE_MS) {
      const message = `the server has been away for ${SERVER_GONE_MS / 1000} s; sandbox ${this.#box.id} may still be at it`;
      this.stop(new ConnectionError(message, { sandbox: this.#box.id, started: started() }));
      return;
    }
    const quiet = now - Math.max(this.#heardAt, this.#inquiredAt);
    if (now - this.#heardAt > REASK_MS) {
      this.heard();
      this.#stream?.close();
    } else if (quiet > (this.#inquiredAt === 0 ? FIRST_QUIET_MS : QUIET_MS)) {
      this.#inquiredAt = now;
      void this.#inquire();
    }
  }

  async #inquire(): Promise<void> {
    const found = await this.#box.inquire();
    // It was cut off and is back: what it published meanwhile may be lost.
    if (found === "here" && this.#away) this.#stream?.close();
    this.#away = found === "away";
    // Cut off: look again soon.
    if (this.#away) this.#inquiredAt = Date.now() - QUIET_MS + FIRST_QUIET_MS / 5;
  }
}

function canceled({ signal, started }: WatchOptions): CanceledError {
  return new CanceledError("canceled by the caller", { cause: signal?.reason, started: started() });
}

/** The same error, saying also whether the command had been started. */
export function withStarted(error: SandmeshError, started: Started): SandmeshError {
  if (error.started !== undefined) return error;
  const copy = fromWire({ ...error.toWire(), started });
  copy.stack = error.stack ?? "";
  return copy;
}
