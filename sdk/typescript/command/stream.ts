// A command's output while it runs.
import {
  CanceledError,
  InternalError,
  InvalidRequestError,
  type SandmeshError,
} from "../../../broker/contract/index.ts";
import { whenAborted } from "../../../broker/link/on-abort.ts";
import { onlySignal } from "../arguments.ts";
import type { Abortable } from "../files/files.ts";
import type { Box } from "../wire/box.ts";
import { canceledBy } from "../wire/pause.ts";
import { Chunk } from "./chunk.ts";
import { cancelBehind, type Follower } from "./follow.ts";
import { CommandEnd } from "./result.ts";

export interface StreamOptions {
  /** What leaving the loop early does: `cancel` the command (default for `stream`), or `leave` it (for `attach`). */
  onLeave: "cancel" | "leave";
  /** Called when the reading begins, and when it is over. */
  onStart?: () => void;
  onDone?: () => void;
  /** Called behind the last part of stdout where the command goes on without it, as a connection whose other side has
   * closed; perhaps more than once. */
  onOutputEnd?: () => void;
}

interface Settle {
  resolve: (end: CommandEnd) => void;
  reject: (error: unknown) => void;
}

/**
 * `for await (const chunk of stream)`, then `await stream.end`. Reading slowly slows the command down (its pipe is
 * full), and never fills memory. Can be iterated once (InvalidRequestError); the command is sent when the iteration
 * begins.
 */
export class CommandStream implements AsyncIterable<Chunk>, AsyncDisposable {
  readonly id: string;
  /** How the command ended. Only comes when the stream is read to its end; rejects with what the loop throws, with
   * CanceledError where the loop was left early, and at once where the signal aborts. */
  readonly end: Promise<CommandEnd>;
  readonly #box: Box;
  readonly #follower: Follower;
  readonly #options: StreamOptions;
  readonly #settle: Settle;
  #iterated = false;
  #ended = false;
  #closed = false;

  constructor(box: Box, id: string, follower: Follower, options: StreamOptions) {
    this.#box = box;
    this.id = id;
    this.#follower = follower;
    this.#options = options;
    let settle: Settle | undefined;
    this.end = new Promise((resolve, reject) => {
      settle = { resolve, reject };
    });
    if (settle === undefined) throw new InternalError("a promise did not call its executor");
    this.#settle = settle;
    // Who reads the loop learns of the error there; `end` may stay unread.
    this.end.catch(() => undefined);
    follower.onStop((error) => this.#stopped(error));
  }

  /** Reads the rest and throws it away; resolves to how the command ended. Aborting is as leaving the loop. */
  async drain(options: Abortable = {}): Promise<CommandEnd> {
    const { signal } = onlySignal(options);
    const unhear = whenAborted(signal, () => this.#follower.stop(canceledBy(signal)));
    try {
      for await (const _ of this) {
        // Only the end matters.
      }
    } finally {
      unhear();
    }
    return await this.end;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Chunk, void, void> {
    if (this.#iterated)
      throw new InvalidRequestError("a command's stream can be read once; `command(id).attach()` is another");
    this.#iterated = true;
    this.#options.onStart?.();
    try {
      yield* this.#chunks();
    } catch (error) {
      this.#settle.reject(error);
      throw error;
    } finally {
      this.close();
    }
  }

  async *#chunks(): AsyncGenerator<Chunk, void, void> {
    const before: Record<"stdout" | "stderr", Uint8Array> = { stdout: NOTHING, stderr: NOTHING };
    const next = { stdout: 0, stderr: 0 };
    const make = (stream: "stdout" | "stderr", data: Uint8Array, offset: number) => {
      const chunk = new Chunk(stream, data, offset, before[stream]);
      before[stream] = chunk.unfinished;
      next[stream] = offset + data.length;
      return chunk;
    };
    for await (const frame of this.#follower.frames()) {
      if (frame.type === "chunk" && frame.stream !== "data") {
        if (frame.data.length > 0) yield make(frame.stream, frame.data, frame.offset);
        if (frame.eof === true && frame.stream === "stdout") this.#options.onOutputEnd?.();
      } else if (frame.type === "end") {
        for (const stream of ["stdout", "stderr"] as const) {
          const data = frame[stream];
          if (data !== undefined && data.length > 0) yield make(stream, data, next[stream]);
        }
        this.#ended = true;
        this.#settle.resolve(new CommandEnd(frame, this.#box.id));
      }
    }
  }

  /** Stops reading. What becomes of the command: `stream` cancels it, `attach` leaves it. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#options.onDone?.();
    if (this.#ended) return;
    this.#follower.stop(new CanceledError("the stream was left before its end"));
    this.#follower.end();
  }

  /** Told at once, also while the reader is busy with a chunk, or before it has begun. */
  #stopped(error: SandmeshError): void {
    if (this.#ended) return;
    this.#settle.reject(error);
    if (!this.#iterated) this.#follower.end();
    else if (error instanceof CanceledError && this.#options.onLeave === "cancel")
      cancelBehind(this.#box, this.id);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }
}

const NOTHING = new Uint8Array(0);
