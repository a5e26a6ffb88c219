// A command's standard input: written at offsets, so that a repeated part is taken once.
import {
  ConnectionError,
  InvalidRequestError,
  SessionClosedError,
  UnknownCommandError,
} from "../../../broker/contract/index.ts";
import { bytesOf, onlySignal } from "../arguments.ts";
import type { Abortable } from "../files/files.ts";
import type { Box } from "../wire/box.ts";
import { mayBeLost } from "../wire/lost.ts";
import { type Part, partsOf, piecesUntil, type Source } from "../wire/parts.ts";
import { pause, throwIfAborted, unlessAborted } from "../wire/pause.ts";
import { orReconnect } from "../wire/reconnect.ts";
import { sendParts } from "../wire/sending.ts";

/** A command that does not read leaves its input unanswered, which is no fault: one try waits this long. */
const TRY_MS = 24 * 3600 * 1000;
const AGAIN_MS = 30_000;
/** Taken as repeated: its answer tells how much was taken before. */
const NOTHING: Part = { offset: 0, data: new Uint8Array(0), last: false };

/** How soon a command that is not known yet is written to again, ms: doubled, up to the second. */
const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 1_000;

/** `comes`: whether the command may not be there yet, since its own request was sent just before, and may be lost and asked
 * again; it is waited for then. */
async function sendTo(
  box: Box,
  id: string,
  part: Part,
  signal: AbortSignal | undefined,
  comes: () => boolean,
): Promise<{ received: number }> {
  const request = { id, offset: part.offset, data: part.data, eof: part.last };
  for (let pauseMs = FIRST_PAUSE_MS; ; ) {
    const coming = comes();
    try {
      return await orReconnect(box.pulse, signal, (either) =>
        box.call("stdin", request, {
          timeoutMs: TRY_MS,
          againAfterMs: AGAIN_MS,
          signal: either,
        }),
      );
    } catch (error) {
      if (error instanceof UnknownCommandError && coming) {
        await pause(pauseMs, signal);
        throwIfAborted(signal);
        pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS);
      } else if (!(error instanceof ConnectionError && mayBeLost(error))) throw error;
    }
  }
}

/** Whether the command takes no more of its stdin: it has ended so long ago that it is forgotten, or its stdin was closed. */
export const takesNoMore = (error: unknown): boolean =>
  error instanceof UnknownCommandError ||
  error instanceof SessionClosedError ||
  (error instanceof InvalidRequestError && error.field === "offset");

/** A caller's source threw (`cause`), or gave what is neither text nor bytes. Apart from what becomes of the sending, which
 * may be of the same class: the source may be another sandbox's file. */
export class SourceError extends Error {
  constructor(cause: unknown) {
    super(`stdin's source failed: ${cause instanceof Error ? cause.message : String(cause)}`, { cause });
  }
}

/** The source's parts. Throws SourceError, and CanceledError as soon as `signal` aborts. */
export async function* heeded(source: Source, signal: AbortSignal): AsyncGenerator<Uint8Array, void, void> {
  try {
    for await (const piece of piecesUntil<string | Uint8Array>(source, signal)) yield bytesOf(piece, "stdin");
  } catch (cause) {
    throwIfAborted(signal);
    throw new SourceError(cause);
  }
}

/** Feeds `source` to the command, then closes its stdin; until `signal` aborts, when its end is known. Ends quietly where the
 * command does not take it (as a pipe's writer learns of it, and no more). Rejects with SourceError where the source is at
 * fault, and with what else keeps stdin from the command, which waits for it. */
export async function pump(box: Box, id: string, source: Source, signal: AbortSignal): Promise<void> {
  let known = false;
  const send = async (part: Part): Promise<void> => {
    await sendTo(box, id, part, signal, () => !known);
    known = true;
  };
  try {
    await sendParts(heeded(source, signal), { live: true, send, giveUpMs: TRY_MS, signal });
  } catch (error) {
    if (!(signal.aborted || takesNoMore(error))) throw error;
  }
}

/** Writes as it comes, in order; each resolves when the command's side has taken it. */
export class StdinWriter {
  readonly #box: Box;
  readonly #id: string;
  readonly #comes: () => boolean;
  #offset: number | undefined;
  #last: Promise<unknown> = Promise.resolve();
  #closed = false;

  /** `from`: how many bytes the command's side has taken; undefined where another client may have written. It is asked
   * then: what is written at an offset that was written at before would count as repeated, and be skipped. `comes`: whether
   * the command's own request may still be on its way. */
  constructor(box: Box, id: string, from: number | undefined, comes: () => boolean = () => false) {
    this.#box = box;
    this.#id = id;
    this.#offset = from;
    this.#comes = comes;
  }

  /** At most 256 KiB at once are sent as one part; more is cut. Throws UnknownCommandError where the command is not
   * known, SessionClosedError (`closed`) after `close`, and what the connection throws. Of an aborted one the command may
   * read a part. */
  async write(data: string | Uint8Array, options: Abortable = {}): Promise<void> {
    const { signal } = onlySignal(options);
    if (this.#closed) throw new SessionClosedError("stdin is closed", { reason: "closed" });
    const all = bytesOf(data, "data");
    if (all.length > 0) await this.#enqueue(all, false, signal);
  }

  /** Closes it: the command reads the end. Does nothing the second time. The signal ends the waiting; the closing goes
   * on. */
  async close(options: Abortable = {}): Promise<void> {
    const { signal } = onlySignal(options);
    if (this.#closed) return;
    this.#closed = true;
    await unlessAborted(this.#enqueue(new Uint8Array(0), true, undefined), signal);
  }

  #send(part: Part, signal: AbortSignal | undefined): Promise<{ received: number }> {
    return sendTo(this.#box, this.#id, part, signal, this.#comes);
  }

  #enqueue(data: Uint8Array, eof: boolean, signal: AbortSignal | undefined): Promise<unknown> {
    const send = async () => {
      throwIfAborted(signal);
      const base = this.#offset ?? (await this.#send(NOTHING, signal)).received;
      // Should this fail or be aborted, nobody knows how much was taken: it is asked before the next one.
      this.#offset = undefined;
      for await (const part of partsOf([data])) {
        const last = eof && part.last;
        await this.#send({ ...part, offset: base + part.offset, last }, signal);
      }
      this.#offset = base + data.length;
    };
    // One after another, also where the caller does not wait; a failed one does not hold up the next.
    const done = this.#last.then(send, send);
    this.#last = done.catch(() => undefined);
    return unlessAborted(done, signal);
  }
}
