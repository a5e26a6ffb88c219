// Large messages, read to where they stay. The runtime's own reading makes a new buffer of what has come, from which it is
// copied once more; in a daemon, whose heap is small, most of an upload's CPU went into these buffers and their collection.
import type { Socket } from "node:net";
import type { MessageParser } from "./parser.ts";

export interface Intake {
  /** Reads at least `least` bytes to `into`: how many, -1 where the socket is at its end or has failed, 0 where they are not
   * there yet. Then `came` is told so, and until then `into` is not to be looked at. */
  read(into: Uint8Array, least: number): number;
  /** From then on the runtime reads the socket again. */
  close(): void;
}

/** Takes a socket from the runtime; undefined where that cannot be. */
export type OpenIntake = (socket: Socket, came: (length: number) => void) => Intake | undefined;

/** A message of which less is missing comes as well by the runtime. */
const LARGE_BYTES = 64 * 1024;
/** Between two messages: the line of the next one, and a little of what is behind it. */
const LINE_BYTES = 2048;
/** Read in one turn, before others have theirs. */
const TURN_BYTES = 1024 * 1024;

export class LargeMessages {
  readonly #socket: Socket;
  readonly #messages: MessageParser;
  readonly #open: OpenIntake;
  readonly #failed: (error: unknown) => void;
  #intake: Intake | undefined;
  #planned: ReturnType<typeof setImmediate> | undefined;
  /** What is read to, where it is no gap. */
  #line: Uint8Array | undefined;
  #over = false;

  constructor(socket: Socket, messages: MessageParser, open: OpenIntake, failed: (error: unknown) => void) {
    this.#socket = socket;
    this.#messages = messages;
    this.#open = open;
    this.#failed = failed;
  }

  /** After what the runtime has read: whether it shall go on by the intake. */
  look(): void {
    if (this.#planned !== undefined || this.#intake !== undefined || this.#over || !this.#isLarge()) return;
    // Not in the runtime's own reading, which may read more at once.
    this.#planned = setImmediate(() => {
      this.#planned = undefined;
      if (this.#over || !this.#isLarge()) return;
      this.#intake = this.#open(this.#socket, this.#came);
      this.#take();
    });
  }

  #isLarge(): boolean {
    return (this.#messages.gap?.length ?? 0) >= LARGE_BYTES;
  }

  readonly #came = (length: number): void => {
    if (this.#intake === undefined) return;
    if (this.#arrived(length)) this.#take();
  };

  #take(): void {
    for (let read = 0; this.#intake !== undefined; ) {
      if (read >= TURN_BYTES) {
        this.#planned = setImmediate(() => {
          this.#planned = undefined;
          this.#take();
        });
        return;
      }
      const { gap } = this.#messages;
      const into = gap ?? Buffer.allocUnsafe(LINE_BYTES);
      this.#line = gap === undefined ? into : undefined;
      const length = this.#intake.read(into, gap?.length ?? 1);
      if (length === 0 || !this.#arrived(length)) return;
      read += length;
    }
  }

  /** Whether the intake goes on. */
  #arrived(length: number): boolean {
    if (length < 0) {
      // What the end is, the runtime finds out.
      this.#giveBack();
      return false;
    }
    try {
      const line = this.#line;
      if (line === undefined) this.#messages.came(length);
      else {
        this.#messages.parse(line.subarray(0, length));
        // A small one: there may be more of them, which the runtime is sooner told of.
        if (this.#messages.gap === undefined) this.#giveBack();
      }
    } catch (error) {
      this.#failed(error);
      return false;
    }
    return this.#intake !== undefined;
  }

  #giveBack(): void {
    this.#intake?.close();
    this.#intake = undefined;
  }

  /** Before the socket's descriptor is someone else's. */
  close(): void {
    this.#over = true;
    clearImmediate(this.#planned);
    this.#giveBack();
  }
}
