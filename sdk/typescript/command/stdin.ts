// A command's standard input: written at offsets, so that a repeated part is taken once.
import { ConnectionError, SandmeshError, SessionClosedError } from "../../../broker/contract/index.ts";
import { bytesOf, onlySignal } from "../arguments.ts";
import type { Abortable } from "../files/files.ts";
import type { Box } from "../wire/box.ts";
import { mayBeLost } from "../wire/lost.ts";
import { type Part, partsOf, piecesUntil, type Source, sendParts } from "../wire/parts.ts";
import { throwIfAborted, unlessAborted } from "../wire/pause.ts";
import { orReconnect } from "../wire/reconnect.ts";

/** A command that does not read leaves its input unanswered, which is no fault: one try waits this long. */
const TRY_MS = 24 * 3600 * 1000;
const AGAIN_MS = 30_000;
/** Taken as repeated: its answer tells how much was taken before. */
const NOTHING: Part = { offset: 0, data: new Uint8Array(0), last: false };

async function sendTo(
  box: Box,
  id: string,
  part: Part,
  signal: AbortSignal | undefined,
): Promise<{ received: number }> {
  const request = { id, offset: part.offset, data: part.data, eof: part.last };
  for (;;) {
    try {
      return await orReconnect(box.pulse, signal, (either) =>
        box.call("stdin", request, {
          timeoutMs: TRY_MS,
          againAfterMs: AGAIN_MS,
          signal: either,
        }),
      );
    } catch (error) {
      if (!(error instanceof ConnectionError && mayBeLost(error))) throw error;
    }
  }
}

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

/** Feeds `source` to the command, then closes its stdin. Ends quietly where the command has ended or does not take
 * it (as a pipe's writer learns of it, and no more); rejects with SourceError where the source is at fault. */
export async function pump(box: Box, id: string, source: Source, signal: AbortSignal): Promise<void> {
  try {
    await sendParts(heeded(source, signal), {
      live: true,
      send: (part) => sendTo(box, id, part, signal),
      giveUpMs: TRY_MS,
      signal,
    });
  } catch (error) {
    if (!(error instanceof SandmeshError)) throw error;
  }
}

/** Writes as it comes, in order; each resolves when the command's side has taken it. */
export class StdinWriter {
  readonly #box: Box;
  readonly #id: string;
  #offset: number | undefined;
  #last: Promise<unknown> = Promise.resolve();
  #closed = false;

  /** `from`: how many bytes the command's side has taken; undefined where another client may have written. It is asked
   * then: what is written at an offset that was written at before would count as repeated, and be skipped. */
  constructor(box: Box, id: string, from: number | undefined) {
    this.#box = box;
    this.#id = id;
    this.#offset = from;
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

  #enqueue(data: Uint8Array, eof: boolean, signal: AbortSignal | undefined): Promise<unknown> {
    const send = async () => {
      throwIfAborted(signal);
      const base = this.#offset ?? (await sendTo(this.#box, this.#id, NOTHING, signal)).received;
      // Should this fail or be aborted, nobody knows how much was taken: it is asked before the next one.
      this.#offset = undefined;
      for await (const part of partsOf([data])) {
        const last = eof && part.last;
        await sendTo(this.#box, this.#id, { ...part, offset: base + part.offset, last }, signal);
      }
      this.#offset = base + data.length;
    };
    // One after another, also where the caller does not wait; a failed one does not hold up the next.
    const done = this.#last.then(send, send);
    this.#last = done.catch(() => undefined);
    return unlessAborted(done, signal);
  }
}
