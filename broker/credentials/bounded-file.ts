// Small files that a program is started with: settings, keys, credentials, a CA. Read to their end, and never without end.
import { closeSync, constants, fstatSync, openSync, readSync, type Stats } from "node:fs";
import { InvalidRequestError } from "../contract/core.ts";

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

  /** Reads what is there: how many bytes came, 0 at the end. Throws InvalidRequestError where it is too large, and the
   * system's errors. */
  more(): number {
    const got = readSync(this.#file, this.#room, this.#length, this.#room.length - this.#length, null);
    this.#length += got;
    const { atMostKib, field } = this.#kind;
    if (this.#length <= atMostKib * 1024) return got;
    throw new InvalidRequestError(`${field}: ${this.#path} is larger than ${atMostKib} KiB`, { field });
  }

  /** Reads to the end. Throws as `more`. */
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

/** The text of the file that the setting `field` names. Throws InvalidRequestError where it is too large, and the system's
 * errors. */
export function readBounded(path: string, field: string): string {
  const file = new BoundedText(path, { field, atMostKib: AT_MOST_KIB }, constants.O_RDONLY);
  try {
    return file.all();
  } finally {
    file.close();
  }
}
