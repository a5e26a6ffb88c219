// What the engine's library does with folders: their entries, what changes in them, and paths that do not leave them. Each
// call returns at once, where a disk does; a negative answer is an errno.
import { type Pointer, ptr } from "bun:ffi";
import type { Library } from "./library.ts";

/** PATH_MAX, and room by which a longer one is known. */
const PATH_BYTES = 4096 + 8;
const MAX_CHARACTER_BYTES = 4;
/** As the kernel gives it. */
const ENAMETOOLONG = -36;

export class Folders {
  readonly #native: Library;
  readonly #path = Buffer.alloc(PATH_BYTES);

  constructor(native: Library) {
    this.#native = native;
  }

  /** A descriptor of inotify(7), which never waits. */
  inotify(): number {
    return this.#native.engine_inotify();
  }

  /** The number of the watch that `path` has by it. */
  inotifyAdd(fd: number, path: string, mask: number): number {
    const at = this.#placed(path);
    return at === undefined ? ENAMETOOLONG : this.#native.engine_inotify_add(fd, at, mask);
  }

  inotifyRemove(fd: number, watch: number): void {
    this.#native.engine_inotify_remove(fd, watch);
  }

  /** A descriptor for `entries`; EAGAIN where a first piece would take the kernel as long as all of them. A symlink is
   * followed only where that is asked for. `about` becomes its links and its device; where the second is the folder's
   * device before, ENODATA says of one with two links that it was not opened. */
  open(path: string, follow: boolean, about: Uint32Array): number {
    const at = this.#placed(path);
    return at === undefined ? ENAMETOOLONG : this.#native.engine_folder(at, follow ? 1 : 0, ptr(about));
  }

  /** How many bytes of the folder's next entries, as of getdents64(2), are in `into`; 0 after the last. After that, and an
   * errno, the descriptor is closed; whoever ends before closes it. */
  entries(fd: number, into: Buffer): number {
    return this.#native.engine_entries(fd, ptr(into), into.length);
  }

  /** A descriptor (O_PATH) of what `path` leads to, which does not leave the folder that `root` is open for, openat2(2);
   * with `links` false no symlink is followed. EXDEV: it would leave; ENOSYS, EPERM, EAGAIN: the kernel cannot tell. */
  beneath(root: number, path: string, links: boolean): number {
    const at = this.#placed(path);
    return at === undefined ? ENAMETOOLONG : this.#native.engine_beneath(root, at, links ? 1 : 0);
  }

  /** Where a file's next data is from `offset` on, or its next hole, lseek(2); it moves the file's own position. ENXIO: there is
   * no data behind. */
  seek(fd: number, offset: number, what: "data" | "hole"): number {
    return Number(this.#native.engine_seek(fd, offset, what === "hole" ? 1 : 0));
  }

  /** Where a path lies for the next call; undefined for one that is longer than the kernel takes. (A new buffer for each
   * costs as much as a call.) */
  #placed(path: string): Pointer | undefined {
    const length = this.#path.write(path);
    if (length >= PATH_BYTES - MAX_CHARACTER_BYTES) return undefined;
    this.#path[length] = 0;
    return ptr(this.#path);
  }
}
