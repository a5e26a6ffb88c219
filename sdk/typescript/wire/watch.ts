// Guards one stream of answers: the caller's signal, the deadline, the sandbox's loss and silence all end in `stop`,
// which closes the stream that is being read.
import { DeadlineError, type SandmeshError, type Started } from "../../../broker/contract/index.ts";
import type { AnswerStream } from "../../../broker/link/link.ts";
import { onAbort } from "../../../broker/link/on-abort.ts";
import type { Box } from "./box.ts";
import { seconds } from "./caller.ts";
import { saying } from "./lost.ts";
import { canceledBy, pause } from "./pause.ts";
import type { Waiting } from "./pulse.ts";
import { Silence } from "./silence.ts";

/** The link's own time limit for a stream that a watch guards: above any silence, which is the watch's to judge. */
export const LINK_TIMEOUT_MS = 24 * 3600 * 1000;
/** No frame for this long: ask again by the id, in case the answer was lost on the daemon's side. (A file's bytes have no
 * id: they are given up.) */
export const REASK_MS = 60_000;

/** At the caller's limit the sandbox has this long to say that it is there. */
const OVERDUE_MS = 1_000;

/** An answer that the server has sent already is here by then. */
const ON_ITS_WAY_MS = 500;

/** The caller's limit; and how much longer is waited for a sandbox that is there, which ends the command at its limit, and
 * with some grace. */
export interface Patience {
  limitMs: number;
  graceMs: number;
}

export interface WatchOptions {
  signal: AbortSignal | undefined;
  patience: Patience | undefined;
  /** What the deadline and the loss say about the command. */
  started: () => Started;
  /** Called when something stops it, once. */
  onStop?: (error: SandmeshError) => void;
}

export class Watch implements Waiting {
  readonly #box: Box;
  readonly #options: WatchOptions;
  readonly #unsubscribe: () => void;
  readonly #unhear: () => void;
  #stream: AnswerStream | undefined;
  #failure: SandmeshError | undefined;
  #heardAt = Date.now();
  readonly #begunAt = Date.now();
  readonly #silence: Silence;
  #asking = false;
  /** It was closed since nothing came for too long. */
  silent = false;
  /** Who reads has not asked for more: that nothing comes says nothing of the sandbox. */
  holding = false;

  /** Throws at once where the sandbox is lost, the server gone or the signal has aborted already. */
  constructor(box: Box, options: WatchOptions) {
    this.#box = box;
    this.#options = options;
    const error = box.lifeline.error ?? box.caller.unusable;
    if (error !== undefined) throw aboutCommand(error, box.id, options.started());
    if (options.signal?.aborted === true) throw canceled(options);
    this.#silence = new Silence(box, () => this.#stream?.close());
    this.#unsubscribe = box.lifeline.onLost((error) => this.#lost(error));
    this.#unhear = onAbort(options.signal, () => this.stop(canceled(options)));
    box.pulse.add(this);
  }

  /** The stream that is closed when something stops, or is to be asked again. */
  reading(stream: AnswerStream): void {
    this.#stream = stream;
    this.heard();
  }

  heard(): void {
    this.#heardAt = Date.now();
    this.#silence.heard(this.#heardAt);
  }

  throwIfStopped(): void {
    if (this.#failure !== undefined) throw this.#failure;
  }

  stop(error: SandmeshError): void {
    const first = this.#failure === undefined;
    this.#failure ??= error;
    this.#stream?.close();
    if (first) this.#options.onStop?.(error);
  }

  end(): void {
    this.#silence.end();
    this.#unsubscribe();
    this.#unhear();
    this.#box.pulse.delete(this);
    this.#stream?.close();
  }

  onReconnect(): void {
    this.#stream?.close();
  }

  onTick(now: number): void {
    const { patience } = this.#options;
    if (patience !== undefined && now - this.#begunAt >= patience.limitMs) this.#overdue(patience, now);
    if (this.holding) this.heard();
    else if (now - this.#heardAt > REASK_MS) {
      this.silent = true;
      this.heard();
      this.#stream?.close();
    } else {
      this.#silence.onTick(now);
    }
  }

  #overdue({ limitMs, graceMs }: Patience, now: number): void {
    if (now - this.#begunAt >= limitMs + graceMs) this.#late();
    if (this.#asking || this.#failure !== undefined) return;
    this.#asking = true;
    const here = Promise.race([this.#box.inquire(), pause(OVERDUE_MS)]);
    void here.then((found) => {
      this.#asking = false;
      // Where it is lost, that has been told by now.
      if (found !== "here") this.#late();
    });
  }

  #lost(error: SandmeshError): void {
    const { caller, id } = this.#box;
    const tell = (): void => this.stop(aboutCommand(error, id, this.#options.started()));
    if (this.#options.started() !== "unknown") tell();
    // That nobody listened may be on its way already, and says more: the command was not started.
    else void Promise.race([caller.link.flush().catch(() => {}), pause(ON_ITS_WAY_MS)]).then(tell);
  }

  #late(): void {
    const sandbox = this.#box.id;
    const waited = seconds(Date.now() - this.#begunAt);
    const message = `sandbox ${sandbox} did not answer within ${waited}${this.#box.caller.absence()}`;
    this.stop(new DeadlineError(message, { sandbox, started: this.#options.started() }));
  }
}

const canceled = ({ signal, started }: WatchOptions): SandmeshError =>
  canceledBy(signal, { started: started() });

/** The same error, saying also whose command it is about and, where it does not say so itself, whether that had been
 * started. */
export function aboutCommand(error: SandmeshError, sandbox: string, started: Started): SandmeshError {
  return error.started === undefined ? saying(error, started, sandbox) : error;
}
