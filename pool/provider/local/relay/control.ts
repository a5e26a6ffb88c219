// One connection to the relay: a line asked, the same line answered, each within a time, however the relay is.
import type { Socket } from "bun";
import { ProviderError } from "../../../../broker/contract/index.ts";

/** An answer takes the relay a few ms, on a busy machine some tenths of a second. */
const ANSWER_MS = 5_000;

export class Control {
  /** One a line sent, in order. */
  readonly #waiting: { resolve: () => void; reject: (error: Error) => void }[] = [];
  readonly #kill: () => Promise<void>;
  #socket: Socket<undefined> | undefined;
  #lines = "";
  /** Why it is over. */
  #over: ProviderError | undefined;
  #onClose: () => void = () => undefined;
  #killing = false;

  private constructor(kill: () => Promise<void>) {
    this.#kill = kill;
  }

  /** `kill` is to end the relay, which does not answer. Rejects where none listens. */
  static async open(unix: string, kill: () => Promise<void>): Promise<Control> {
    const control = new Control(kill);
    control.#socket = await Bun.connect<undefined>({
      unix,
      socket: {
        data: (_, data) => control.#heard(data.toString()),
        // One that is killed is over when that is done, and by what it was killed for.
        close: () => {
          if (!control.#killing) control.#end(new ProviderError("the relay to NATS ended"));
        },
      },
    });
    return control;
  }

  /** Called at its end; at once where that has been. */
  onClose(handle: () => void): void {
    this.#onClose = handle;
    if (this.#over !== undefined) handle();
  }

  /** Rejects with ProviderError where the relay ends first; one that does not answer in time is killed. */
  async ask(line: string): Promise<void> {
    if (this.#over !== undefined) throw this.#over;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#waiting.push({ resolve, reject });
    // In two halves: where this process itself stood still, what has arrived meanwhile is read between them.
    let timer = setTimeout(() => {
      timer = setTimeout(() => void this.#unanswered(), ANSWER_MS / 2);
    }, ANSWER_MS / 2);
    this.#socket?.write(`${line}\n`);
    try {
      await promise;
    } finally {
      clearTimeout(timer);
    }
  }

  /** Lets go of the relay. */
  close(): void {
    this.#socket?.end();
  }

  #heard(text: string): void {
    const parts = (this.#lines + text).split("\n");
    this.#lines = parts.pop() ?? "";
    for (const _ of parts) this.#waiting.shift()?.resolve();
  }

  /** Once for all that wait: the relay after this one is not to be killed for it. */
  async #unanswered(): Promise<void> {
    if (this.#killing || this.#over !== undefined) return;
    this.#killing = true;
    const why = `the relay to NATS did not answer within ${ANSWER_MS / 1000} s`;
    // What cannot be killed (a process that the kernel holds) keeps nobody waiting either.
    const killed = await this.#kill().then(
      () => `${why} and was killed`,
      (error: unknown) => `${why}: ${String(error)}`,
    );
    this.#end(new ProviderError(killed));
    this.#socket?.terminate();
  }

  #end(error: ProviderError): void {
    if (this.#over !== undefined) return;
    this.#over = error;
    for (const { reject } of this.#waiting.splice(0)) reject(error);
    this.#onClose();
  }
}
