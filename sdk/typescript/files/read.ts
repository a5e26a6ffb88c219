// File contents and trees out of a sandbox: chunk frames with credit, checked by their offsets and their total.
import * as v from "valibot";
import {
  ChunkFrame,
  ConnectionError,
  check,
  DeadlineError,
  decode,
  encode,
  FIRST_CREDIT_BYTES,
  FileEndFrame,
  FileError,
  newUuidV7,
  sandboxSubject,
  throwIfError,
  UnreachableError,
} from "../../../broker/contract/index.ts";
import { giveBlock } from "../../../broker/link/blocks.ts";
import { onlyWellFormed } from "../arguments.ts";
import { creditOf } from "../command/request.ts";
import type { Box } from "../wire/box.ts";
import { giveCredit } from "../wire/credit.ts";
import { mayBeLost } from "../wire/lost.ts";
import { pause, unlessAborted } from "../wire/pause.ts";
import { LINK_TIMEOUT_MS, REASK_MS, Watch } from "../wire/watch.ts";

const FileFrame = v.variant("type", [ChunkFrame, FileEndFrame]);

/** Of a file, perhaps beneath a root. */
export interface ReadPlace extends ReadRange {
  path: string;
  root?: string;
}

export interface ReadRange {
  /** First byte; default 0. */
  offset?: number;
  /** At most this many bytes; default all. */
  length?: number;
}

/** The bytes of `read` or `pack`, in order; reading slowly holds the sandbox's side back. What was cut off is not
 * resumed, since the file may be another one by then: throws ConnectionError. Throws FileError. */
export async function* readFrames(
  box: Box,
  verb: "read" | "pack",
  request: object,
  signal: AbortSignal | undefined,
  ended?: (frame: FileEndFrame) => void,
): AsyncGenerator<Uint8Array, void, void> {
  const { link } = box.caller;
  onlyWellFormed(request);
  const credit_bytes = FIRST_CREDIT_BYTES;
  const ahead = creditOf(box.pulse.waiting);
  const transfer = newUuidV7();
  const body = encode({ version: 1, ...box.target.fence, ...request, credit_bytes, transfer });
  const subject = sandboxSubject(link.tenant, box.id, verb);
  // From here on it keeps the process alive: until the end of what follows.
  const watch = new Watch(box, { signal, patience: undefined, started: () => "unknown" });
  let received = 0;
  let acknowledged = 0;
  let isOver = false;
  try {
    const stream = link.stream(box.id, subject, body, { timeoutMs: LINK_TIMEOUT_MS });
    watch.reading(stream);
    for await (const message of stream) {
      const value = decode(message.data);
      isOver = value.error !== undefined;
      throwIfError(value);
      const frame = check(FileFrame, value);
      isOver = frame.type === "file_end";
      watch.heard();
      const { data } = frame;
      if (frame.type === "chunk" && frame.offset !== received) break;
      if (data !== undefined && data.length > 0) {
        received += data.length;
        watch.holding = true;
        yield data;
        watch.holding = false;
        watch.heard();
      }
      if (frame.type === "file_end") {
        if (received !== frame.total_bytes) break;
        ended?.(frame);
        return;
      }
      if (received - acknowledged >= FIRST_CREDIT_BYTES / 2) {
        acknowledged = received;
        giveCredit(box, { token: stream.token, stream: "data", received, until: received + ahead });
      }
    }
    watch.throwIfStopped();
    if (watch.silent) throw silentError(box.id);
    throw new ConnectionError(`reading from sandbox ${box.id} was cut off`, { sandbox: box.id });
  } catch (error) {
    watch.throwIfStopped();
    box.note(error);
    throw error;
  } finally {
    watch.end();
    // It would wait for credit, and hold the file open, for a minute.
    if (!isOver) abortTransfer(box, transfer);
  }
}

/** Lets the sandbox know that nobody waits for it any more. Where that does not arrive it finds out later. */
export function abortTransfer(box: Box, transfer: string): void {
  box.call("abort_transfer", { transfer }).catch(() => undefined);
}

/** Asks under a new name for what may take the sandbox long, and is given up there when it is here. */
export async function look<A>(box: Box, ask: (transfer: string) => Promise<A>): Promise<A> {
  const transfer = newUuidV7();
  try {
    return await ask(transfer);
  } catch (error) {
    if (!(error instanceof FileError)) abortTransfer(box, transfer);
    throw error;
  }
}

/** Of a file the sandbox sent nothing for as long as is waited, though it is there: beginning anew would wait as long. */
function silentError(sandbox: string): DeadlineError {
  const message = `sandbox ${sandbox} sent nothing for ${REASK_MS / 1_000} s; its file system may not answer`;
  return new DeadlineError(message, { sandbox, reason: SILENT });
}
const SILENT = "silent";

/** What was cut off is begun anew so often. */
const TRIES = 4;
/** A daemon whose broker was restarted is back within seconds; until then nobody listens. */
const ABSENT_MS = 10_000;
const ABSENT_PAUSE_MS = 200;

/** Tries of one reading: whether the way was at fault, so that beginning anew may help, and when. */
export class Anew {
  readonly #since = performance.now();
  readonly #signal: AbortSignal | undefined;
  #tries = 1;

  constructor(signal: AbortSignal | undefined) {
    this.#signal = signal;
  }

  /** Resolves when it may begin anew; throws `error` where it may not. */
  async after(error: unknown): Promise<void> {
    if (error instanceof UnreachableError) {
      if (performance.now() - this.#since > ABSENT_MS || this.#signal?.aborted === true) throw error;
      await pause(ABSENT_PAUSE_MS, this.#signal);
      return;
    }
    const silent = error instanceof DeadlineError && error.reason === SILENT;
    if (silent || !mayBeLost(error) || this.#tries++ === TRIES) throw error;
  }
}

/** All bytes at once; begun anew where it was cut off. */
export async function readAll(
  box: Box,
  request: ReadPlace,
  signal: AbortSignal | undefined,
): Promise<Uint8Array> {
  const anew = new Anew(signal);
  for (;;) {
    try {
      const whole = new Whole();
      for await (const part of readFrames(box, "read", request, signal)) {
        if (whole.length === 0 && part.length >= LARGE_BYTES) whole.expect(sizeOf(box, request));
        whole.add(part);
      }
      return whole.bytes();
    } catch (error) {
      await anew.after(error);
      await unlessAborted(box.inquire(), signal);
    }
  }
}

/** A file that comes in parts of this size is worth a question for its size. */
const LARGE_BYTES = 128 * 1024;

async function sizeOf(box: Box, { offset = 0, length, ...place }: ReadPlace): Promise<number> {
  const { size } = await box.caller.sandbox(box.target, "stat", place);
  return Math.min(size - offset, length ?? size);
}

/** Parts put together: where it is told in time how long they will be, each is copied once, to its place, and its memory
 * is used for the next. It may become longer or shorter than that. */
class Whole {
  length = 0;
  #parts: Uint8Array[] = [];
  #room: Buffer | undefined;
  #over = false;

  expect(size: Promise<number>): void {
    size.then(
      (bytes) => {
        if (!this.#over && bytes > this.length) this.#move(bytes);
      },
      // They are put together at the end, then.
      () => {},
    );
  }

  #move(bytes: number): void {
    const parts = this.#parts;
    this.#parts = [];
    this.length = 0;
    this.#room = Buffer.allocUnsafeSlow(bytes);
    for (const part of parts) this.add(part);
  }

  add(part: Uint8Array): void {
    const room = this.#room;
    if (room !== undefined && this.length + part.length <= room.length) {
      room.set(part, this.length);
      giveBlock(part);
    } else {
      if (room !== undefined) this.#parts = [room.subarray(0, this.length)];
      this.#room = undefined;
      this.#parts.push(part);
    }
    this.length += part.length;
  }

  bytes(): Uint8Array {
    this.#over = true;
    const [first = new Uint8Array(0), ...rest] = this.#parts;
    if (this.#room !== undefined) return this.#room.subarray(0, this.length);
    return rest.length === 0 ? first : Buffer.concat(this.#parts);
  }
}
