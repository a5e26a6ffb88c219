// Small texts of this machine, such as a credential: also from a pipe, as of `<(…)`, and never without end.
import { closeSync, constants, fstatSync, openSync, readSync } from "node:fs";
import { FileError, InvalidRequestError } from "../../../broker/contract/index.ts";
import { pause, throwIfAborted } from "../wire/pause.ts";
import { systemErrno } from "./local-errors.ts";
import { hasName } from "./local-write.ts";

export interface TextKind {
  /** Whose value the path is, for the error. */
  field: string;
  atMostKib: number;
}

/** Someone may type a password before the pipe's other end writes. */
const QUIET_MS = 60_000;
const PAUSE_MS = 20;

/** What is read of a file so far. */
class Reading {
  readonly path: string;
  readonly #kind: TextKind;
  readonly #file: number;
  readonly #room: Buffer;
  #length = 0;

  /** Throws the system's errors. */
  constructor(path: string, kind: TextKind) {
    this.path = path;
    this.#kind = kind;
    this.#room = Buffer.allocUnsafe(kind.atMostKib * 1024 + 1);
    // Neither a fifo without a writer nor a terminal is waited for by a call to the kernel: no signal would be heard there.
    this.#file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
  }

  get isFile(): boolean {
    return fstatSync(this.#file).isFile();
  }

  get isFifo(): boolean {
    return fstatSync(this.#file).isFIFO();
  }

  /** Reads what is there: how many bytes came, 0 at the end; undefined where some may come. Throws InvalidRequestError
   * where it is too large, and the system's errors. */
  more(): number | undefined {
    const { atMostKib, field } = this.#kind;
    const got = this.#read();
    this.#length += got ?? 0;
    if (this.#length <= atMostKib * 1024) return got;
    throw new InvalidRequestError(`${field}: ${this.path} is larger than ${atMostKib} KiB`, { field });
  }

  #read(): number | undefined {
    try {
      return readSync(this.#file, this.#room, this.#length, this.#room.length - this.#length, null);
    } catch (error) {
      if (systemErrno(error) === "EAGAIN") return undefined;
      throw error;
    }
  }

  get text(): string {
    return this.#room.toString("utf8", 0, this.#length);
  }

  close(): void {
    closeSync(this.#file);
  }
}

/** The text of what is at `path`, read once to its end, and whether it is a regular file, which may be read again. Throws
 * InvalidRequestError where it is too large, or nothing comes; CanceledError; the system's errors. */
export async function readText(
  path: string,
  kind: TextKind,
  signal: AbortSignal | undefined,
): Promise<[text: string, isFile: boolean]> {
  const reading = new Reading(path, kind);
  try {
    const { isFile } = reading;
    // Of a fifo with a name nothing comes, too, as long as no writer has opened it.
    let hasWriter = !reading.isFifo;
    for (let until = performance.now() + QUIET_MS; ; ) {
      const got = reading.more();
      if (got === 0 && (hasWriter || !(await hasName(path)))) return [reading.text, isFile];
      hasWriter ||= got !== 0;
      if (got) until = performance.now() + QUIET_MS;
      else if (performance.now() > until) {
        const { field } = kind;
        const message = `${field}: nothing came from ${path} for ${QUIET_MS / 1000} s`;
        throw new InvalidRequestError(message, { field });
      } else await pause(PAUSE_MS, signal);
      throwIfAborted(signal);
    }
  } finally {
    reading.close();
  }
}

/** As `readText`, at once, of a regular file and nothing else. */
export function readFileText(path: string, kind: TextKind): string {
  const reading = new Reading(path, kind);
  try {
    if (!reading.isFile) throw new FileError(`${path} is no file`, { reason: "EINVAL" });
    while (reading.more() !== 0);
    return reading.text;
  } finally {
    reading.close();
  }
}
