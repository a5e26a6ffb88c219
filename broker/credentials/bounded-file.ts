// Small files that a program is started with: settings, keys, credentials, a CA. Read to their end, and never without end.
import { closeSync, constants, fstatSync, openSync, readSync, realpathSync, type Stats } from "node:fs";
import { errnoOf, InvalidRequestError } from "../contract/core.ts";

export interface TextKind {
  /** Whose value the path is, for the error. */
  field: string;
  /** What is larger is no such file, and perhaps has no end, such as /dev/zero. */
  atMostKib: number;
}

/** What is read of a file so far. */
export class BoundedText {
  readonly #path: string;
  readonly #kind: TextKind;
  readonly #file: number;
  readonly #room: Buffer;
  #length = 0;

  /** Throws the system's errors. */
  constructor(path: string, kind: TextKind, flags: number) {
    this.#path = path;
    this.#kind = kind;
    this.#room = Buffer.allocUnsafe(kind.atMostKib * 1024 + 1);
    this.#file = openSync(path, flags);
  }

  get found(): Stats {
    return fstatSync(this.#file);
  }

  /** Reads what is there: how many bytes came, 0 at the end; undefined where some may come (by O_NONBLOCK). Throws
   * InvalidRequestError where it is too large, and the system's errors. */
  more(): number | undefined {
    const got = this.#read();
    this.#length += got ?? 0;
    const { atMostKib, field } = this.#kind;
    if (this.#length <= atMostKib * 1024) return got;
    throw new InvalidRequestError(`${field}: ${this.#path} is larger than ${atMostKib} KiB`, { field });
  }

  #read(): number | undefined {
    try {
      return readSync(this.#file, this.#room, this.#length, this.#room.length - this.#length, null);
    } catch (error) {
      if (errnoOf(error) === "EAGAIN") return undefined;
      throw error;
    }
  }

  /** Reads a regular file to its end. Throws as `more`. */
  all(): string {
    while (this.more() !== 0);
    return this.text;
  }

  get text(): string {
    return this.#room.toString("utf8", 0, this.#length);
  }

  close(): void {
    closeSync(this.#file);
  }
}

const AT_MOST_KIB = 1024;

/** A program that writes to a fifo is at it by then. */
const WRITER_MS = 10_000;
const PAUSE_MS = 20;
/** By a call to the kernel a fifo's writer would be waited for without end. */
const AT_ONCE = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY;

/** The text of the file, or pipe, that the setting `field` names. Throws InvalidRequestError where it is too large, or a
 * fifo that nobody writes; and the system's errors. `writerMs`: a test has no 10 s. */
export function readBounded(path: string, field: string, writerMs = WRITER_MS): string {
  const file = new BoundedText(path, { field, atMostKib: AT_MOST_KIB }, AT_ONCE);
  try {
    let hasWriter = !file.found.isFIFO() || !hasName(path);
    for (const until = performance.now() + writerMs; ; ) {
      const got = file.more();
      if (got === 0 && hasWriter) return file.text;
      hasWriter ||= got !== 0;
      if (!hasWriter && performance.now() > until) {
        const message = `${field}: ${path} is no regular file, and nobody writes to it`;
        throw new InvalidRequestError(message, { field });
      }
      if (!got) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, PAUSE_MS);
    }
  } finally {
    file.close();
  }
}

/** Whether others can open a fifo: of a pipe that is known by a descriptor alone, such as /dev/stdout or one of `<(…)`, the
 * other end does not come back. */
export function hasName(path: string | Buffer): boolean {
  try {
    return realpathSync(path).startsWith("/");
  } catch {
    return false;
  }
}
