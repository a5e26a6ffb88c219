// A command's standard input: written at offsets, counted for each who writes, so that a repeated part is taken once.
import {
  type AnswerOf,
  ConflictError,
  ConnectionError,
  newUuidV7,
  type SANDBOX_VERBS,
  SessionClosedError,
  UnknownCommandError,
} from "../../../broker/contract/index.ts";
import { bytesOf, onlySignal } from "../arguments.ts";
import type { Abortable } from "../files/files.ts";
import type { Box } from "../wire/box.ts";
import { mayBeLost, refusesOffset } from "../wire/lost.ts";
import { type Part, partsOf, piecesUntil, type Source } from "../wire/parts.ts";
import { pause, throwIfAborted, unlessAborted } from "../wire/pause.ts";
import { orReconnect } from "../wire/reconnect.ts";
import { sendParts } from "../wire/sending.ts";

/** A command that does not read leaves its input unanswered, which is no fault: one try waits this long. */
const TRY_MS = 24 * 3600 * 1000;
const AGAIN_MS = 30_000;
/** Taken as repeated: its answer tells how much was taken before, and of whom. */
const NOTHING: Part = { offset: 0, data: new Uint8Array(0), last: false };

/** How soon a command that is not known yet is written to again, ms: doubled, up to the second. */
const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 1_000;

/** `absentMs`: how long a sandbox that is not there is waited for; left out: as by any call. */
interface Waiting {
  signal: AbortSignal | undefined;
  absentMs?: number;
}
type Taken = AnswerOf<(typeof SANDBOX_VERBS)["stdin"]>;

/** `writer`: the token under which the offsets are counted. `comes`: whether the command may not be there yet, since its own
 * request was sent just before, and may be lost and asked again; it is waited for then. */
async function sendTo(
  box: Box,
  id: string,
  writer: string,
  part: Part,
  { signal, ...waiting }: Waiting,
  comes: () => boolean,
): Promise<Taken> {
  const request = { id, writer, offset: part.offset, data: part.data, eof: part.last };
  for (let pauseMs = FIRST_PAUSE_MS; ; ) {
    const coming = comes();
    try {
      return await orReconnect(box.pulse, signal, (either) =>
        box.call("stdin", request, {
          timeoutMs: TRY_MS,
          againAfterMs: AGAIN_MS,
          ...waiting,
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

/** A daemon of before counts all bytes together, and skips those of one who writes where another has just written. It can be
 * seen where it answers that it has more than came from here, up to `part`. */
function throwIfOthersWrote(taken: Taken, { offset, data }: Part): void {
  if (taken.writer !== undefined || taken.received <= offset + data.length) return;
  throw new ConflictError(
    "another client wrote to stdin at the same time, which this sandbox's daemon is too old to tell apart: not all of this may have been taken",
    { field: "offset", started: "yes" },
  );
}

/** Whether the command takes no more of its stdin: it has ended so long ago that it is forgotten. (A daemon of before says
 * `offset` of one that another client has closed, too.) */
export const takesNoMore = (error: unknown): boolean =>
  error instanceof UnknownCommandError || refusesOffset(error);

/** A caller's source threw (`cause`), or gave what is neither text nor bytes. Apart from what becomes of the sending, which
 * may be of the same class: the source may be another sandbox's file. */
export class SourceError extends Error {
  constructor(cause: unknown) {
    super(`stdin's source failed: ${cause instanceof Error ? cause.message : String(cause)}`, { cause });
  }
}

/** The source's parts. Throws SourceError, and CanceledError as soon as `signal` aborts. */
async function* heeded(source: Source, signal: AbortSignal): AsyncGenerator<Uint8Array, void, void> {
  try {
    for await (const piece of piecesUntil<string | Uint8Array>(source, signal)) yield bytesOf(piece, "stdin");
  } catch (cause) {
    throwIfAborted(signal);
    throw new SourceError(cause);
  }
}

/** Feeds `source` to the command, then closes its stdin; until `signal` aborts, when its end is known. Ends quietly where the
 * command does not take it (as a pipe's writer learns of it, and no more). Rejects with SourceError where the source is at
 * fault, and with what else keeps stdin from the command, which waits for it, or was told by another client that it had all. */
export async function pump(box: Box, id: string, source: Source, signal: AbortSignal): Promise<void> {
  const writer = newUuidV7();
  let known = false;
  const send = async (part: Part): Promise<void> => {
    await sendTo(box, id, writer, part, { signal }, () => !known);
    known = true;
  };
  try {
    await sendParts(heeded(source, signal), { live: true, send, giveUpMs: TRY_MS, signal });
  } catch (error) {
    if (!(signal.aborted || takesNoMore(error))) throw error;
  }
}

/** Writes as it comes, in order; each resolves when the command's side has taken it. Several may write to one command, here
 * and in other clients: a write of up to 256 KiB is taken in one piece, the parts of a longer one perhaps with others' between
 * them, as of a pipe's writers. */
export class StdinWriter {
  readonly #box: Box;
  readonly #id: string;
  readonly #comes: () => boolean;
  /** Of one sequence of writes that all succeeded. */
  #writer = newUuidV7();
  #offset: number | undefined;
  /** Whether this daemon counts each writer's bytes apart; undefined: it has not told. */
  #apart: boolean | undefined;
  #last: Promise<unknown> = Promise.resolve();
  #closed = false;

  /** `from`: 0 for who has started the command; undefined where another client may have written, and the daemon may be one that
   * counts all together: it is asked then. `comes`: whether the command's own request may still be on its way. */
  constructor(box: Box, id: string, from: number | undefined, comes: () => boolean = () => false) {
    this.#box = box;
    this.#id = id;
    this.#offset = from;
    this.#comes = comes;
  }

  /** At most 256 KiB at once are sent as one part; more is cut. Throws UnknownCommandError where the command is not
   * known, SessionClosedError (`closed`) after `close`, also another client's, ConflictError where another client wrote at
   * the same time and the sandbox's daemon is one of before, which cannot tell the two apart, and what the connection throws.
   * Of an aborted one the command may read a part. */
  async write(data: string | Uint8Array, options: Abortable = {}): Promise<void> {
    const { signal } = onlySignal(options);
    if (this.#closed) throw new SessionClosedError("stdin is closed", { reason: "closed" });
    const all = bytesOf(data, "data");
    if (all.length > 0) await this.#inTurn(() => this.#put(all, false, { signal }), signal);
  }

  /** Closes it, for all who write: the command reads the end. Does nothing the second time. The signal ends the waiting; the
   * closing goes on. */
  async close(options: Abortable = {}): Promise<void> {
    const { signal } = onlySignal(options);
    if (this.#closed) return;
    this.#closed = true;
    await this.#inTurn(() => this.#put(NOTHING.data, true, { signal: undefined }), signal);
  }

  async #send(part: Part, waiting: Waiting): Promise<Taken> {
    const taken = await sendTo(this.#box, this.#id, this.#writer, part, waiting, this.#comes);
    this.#apart = taken.writer !== undefined;
    return taken;
  }

  /** The offset at which another writer begins, of whom nothing was sent: what of the one before is still on its way takes no
   * byte's place. A daemon that counts all bytes together is asked where that is, before each write: by turns, at least,
   * several may write then. */
  async #renew(waiting: Waiting): Promise<number> {
    this.#writer = newUuidV7();
    if (this.#apart === true) return 0;
    return (await this.#send(NOTHING, waiting)).received;
  }

  /** Internal: all of `source`, before whatever is written from now on, and then the end, unless it is to stay `open`: none
   * where it fails or is aborted. A sandbox that is away is waited for until it is known as lost. Throws SourceError, and as
   * `write`. */
  feed(source: Source, open: boolean, signal: AbortSignal): Promise<void> {
    const absentMs = TRY_MS;
    const all = async () => {
      for await (const piece of heeded(source, signal)) await this.#put(piece, false, { signal, absentMs });
      if (open) return;
      this.#closed = true;
      await this.#put(NOTHING.data, true, { signal: undefined, absentMs });
    };
    return this.#inTurn(all, signal);
  }

  /** One after another, also where the caller does not wait; a failed one does not hold up the next. */
  #inTurn(work: () => Promise<void>, signal: AbortSignal | undefined): Promise<void> {
    const done = this.#last.then(work, work);
    this.#last = done.catch(() => undefined);
    return unlessAborted(done, signal);
  }

  async #put(data: Uint8Array, eof: boolean, waiting: Waiting): Promise<void> {
    throwIfAborted(waiting.signal);
    let base = this.#offset ?? (await this.#renew(waiting));
    // Should this fail or be aborted, nobody knows how much was taken.
    this.#offset = undefined;
    for await (const part of partsOf([data])) {
      const sent = { ...part, offset: base + part.offset, last: eof && part.last };
      if (!(await this.#takes(sent, waiting))) {
        base = (await this.#renew(waiting)) - part.offset;
        await this.#send({ ...sent, offset: base + part.offset }, waiting);
      }
    }
    if (this.#apart === true) this.#offset = base + data.length;
  }

  /** False where the daemon no longer knows this writer, after many others: all before was taken, nothing of this was. */
  async #takes(part: Part, waiting: Waiting): Promise<boolean> {
    try {
      const taken = await this.#send(part, waiting);
      if (part.data.length > 0) throwIfOthersWrote(taken, part);
      return true;
    } catch (error) {
      if (refusesOffset(error) && this.#apart === true && part.offset > 0) return false;
      throw error;
    }
  }
}
