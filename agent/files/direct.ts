// Small files of a tree, by plain calls in place of the runtime's threads: a call to a thread and back costs some 15 µs
// of processor, and a file of 1 KB needs six of them, each of which the kernel does in 2 to 5 µs.
import {
  closeSync,
  constants,
  fchmodSync,
  fchownSync,
  fstatSync,
  futimesSync,
  openSync,
  readSync,
  renameSync,
  rmSync,
  type Stats,
  writeSync,
} from "node:fs";
import type { ArchiveEntry } from "../../broker/contract/tar/entry.ts";
import { utimeOf } from "../../broker/contract/tar/utime.ts";
import { mayWait } from "./mounts.ts";
import { becameShorter, wasCutOff } from "./shorter.ts";
import { UNWAITING } from "./unwaiting.ts";

const { O_RDONLY, O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;

/** Up to this size. */
export const DIRECT_BYTES = 64 * 1024;
/** A call that took longer, ms, was made to a slow disk … */
const SLOW_MS = 5;
/** … and so many files after it go by the threads, since commands must not wait for a disk. */
const THREADED_FILES = 500;
/** How long others may be kept from their turn, ms. */
const TURN_MS = 4;

export class Direct {
  readonly #mayWait: boolean;
  #threaded = 0;
  #turnBegan = performance.now();

  /** `waits`: a plain call may wait for another machine or program, and all of the daemon with it. */
  constructor(waits: boolean = mayWait()) {
    this.#mayWait = waits;
  }

  /** Whether the next file may be done so. */
  allowed(): boolean {
    if (this.#mayWait) return false;
    if (this.#threaded === 0) return true;
    this.#threaded--;
    return false;
  }

  run<T>(act: () => T): T {
    const began = performance.now();
    try {
      return act();
    } finally {
      if (performance.now() - began > SLOW_MS) this.#threaded = THREADED_FILES;
    }
  }

  /** Lets others have their turn, where it is time. */
  async turn(): Promise<void> {
    if (performance.now() - this.#turnBegan < TURN_MS) return;
    await new Promise((resolve) => setImmediate(resolve));
    this.#turnBegan = performance.now();
  }
}

/** The whole file with that content, mode, owner and time, at `path`; by way of `draft`, of which nothing stays. */
export function putFile(
  { draft, path }: { draft: Buffer; path: Buffer },
  entry: ArchiveEntry,
  owner: boolean,
  content: Uint8Array,
): void {
  const file = openSync(draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
  try {
    try {
      for (let at = 0; at < content.length; ) at += writeSync(file, content, at);
      // Before the mode: changing the owner clears the set-uid bits.
      if (owner) fchownSync(file, entry.uid, entry.gid);
      fchmodSync(file, entry.mode);
      futimesSync(file, utimeOf(entry.mtime), utimeOf(entry.mtime));
    } finally {
      closeSync(file);
    }
    renameSync(draft, path);
  } catch (thrown) {
    rmSync(draft, { force: true });
    throw thrown;
  }
}

/** What stands at `path`, and its content where that is a small regular file with one name; undefined otherwise. Throws
 * FileError with the reason ESTALE, of `shown()`, where it is cut off meanwhile. */
export function getFile(path: Buffer, shown: () => string): { stats: Stats; content: Buffer } | undefined {
  const file = openSync(path, O_RDONLY | UNWAITING | O_NOFOLLOW);
  try {
    const stats = fstatSync(file);
    if (!stats.isFile() || stats.nlink > 1 || stats.size > DIRECT_BYTES) return undefined;
    const content = Buffer.alloc(stats.size);
    let at = 0;
    while (at < content.length) {
      const got = readSync(file, content, at, content.length - at, null);
      if (got === 0) break;
      at += got;
    }
    if (at < stats.size && wasCutOff(stats, fstatSync(file))) throw becameShorter("pack", shown());
    return { stats, content: content.subarray(0, at) };
  } finally {
    closeSync(file);
  }
}
