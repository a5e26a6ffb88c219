// inotify(7) for all watches of the daemon: one instance, of which a machine has few (fs.inotify.max_user_instances).
import { close, constants, readSync } from "node:fs";
import { open } from "node:fs/promises";
import { errnoOf } from "../../broker/contract/index.ts";
import { fileFault } from "../files/error.ts";
import type { Engine } from "../native/engine.ts";

export const IN = {
  modify: 0x2,
  attrib: 0x4,
  movedFrom: 0x40,
  movedTo: 0x80,
  create: 0x100,
  delete: 0x200,
  deleteSelf: 0x400,
  moveSelf: 0x800,
  unmount: 0x2000,
  overflow: 0x4000,
  ignored: 0x8000,
  onlyFolder: 0x0100_0000,
  dontFollow: 0x0200_0000,
  isFolder: 0x4000_0000,
} as const;
/** A folder that is watched twice has one watch, so that all have the same. */
const EVENTS =
  IN.modify | IN.attrib | IN.movedFrom | IN.movedTo | IN.create | IN.delete | IN.deleteSelf | IN.moveSelf;

/** Folders of all watches together: of each the daemon remembers some 200 bytes, and the kernel 1 KB with its inode. */
const MAX_FOLDERS = 131_072;
/** Of events: a header and a name. */
const HEADER_BYTES = 16;
const BUFFER_BYTES = 64 * 1024;
/** Events are read together; in that time the kernel's queue (16,384) does not fill. */
const BATCH_MS = 5;

/** ENOENT, as the kernel gives it. */
export const GONE = -2;
/** They end a watch; what was left out for them would be missed without a word. */
const SHORT = new Set(["EMFILE", "ENFILE", "ENOMEM"]);
export const isShort = (thrown: unknown): boolean => SHORT.has(errnoOf(thrown) ?? "");
/** Node has no name for it. */
const O_PATH = 0o10_000_000;

/** What is told of the events of one watch of the kernel's. */
export interface Place {
  /** The kernel's number. */
  wd: number;
  /** Another place of the same number: a folder that is seen from two watches, or by two paths. */
  twin: Place | undefined;
  /** `name` is empty where it is about the place itself. */
  event(mask: number, name: string): void;
}

export class Inotify {
  readonly #engine: Engine;
  readonly #fd: number;
  readonly #buffer = Buffer.allocUnsafeSlow(BUFFER_BYTES);
  readonly #places = new Map<number, Place>();
  readonly #onOverflow: () => void;
  #count = 0;
  #closed = false;
  #unhear: () => void = () => undefined;

  /** `onOverflow`: events were lost. Throws FileError. */
  constructor(engine: Engine, onOverflow: () => void) {
    this.#engine = engine;
    this.#onOverflow = onOverflow;
    this.#fd = engine.folders.inotify();
    if (this.#fd < 0)
      throw fileFault(
        "EMFILE",
        "no inotify instance is to be had: the machine's limit fs.inotify.max_user_instances (of all of the user's " +
          "programs on it) is reached, or the daemon has too many files open; end other watches, or raise it",
      );
    this.#hear();
  }

  /** The number that `path` is watched by, which is to be held; negative: an errno. `how` are further flags. Throws
   * FileError where a limit is reached. */
  watch(path: string, how: number): number {
    const wd = this.#engine.folders.inotifyAdd(this.#fd, path, EVENTS | how);
    if (wd === -28)
      throw fileFault(
        "ENOSPC",
        `${path} is one too many: the machine's limit fs.inotify.max_user_watches (of all of the user's programs on ` +
          `it) is reached, with ${this.#count} folders watched here; watch a smaller folder, or raise it`,
      );
    return wd;
  }

  /** The same, where the kernel's call may wait for a file system that does not answer: a thread for files leads the way.
   * Throws also what `signal` says, and of a path that may be a link its errnos. */
  async watchByThread(path: string, how: number, signal: AbortSignal): Promise<number> {
    const below = (how & IN.dontFollow) !== 0;
    const flags = below ? constants.O_NOFOLLOW | constants.O_DIRECTORY : 0;
    const file = await open(path, O_PATH | flags).catch((thrown: unknown) => {
      if (!below || isShort(thrown)) throw thrown;
    });
    if (file === undefined) return GONE;
    try {
      signal.throwIfAborted();
      return this.watch(`/proc/self/fd/${file.fd}`, how & ~IN.dontFollow);
    } finally {
      await file.close();
    }
  }

  /** Throws FileError where too many are held. */
  hold(place: Place): void {
    const twin = this.#places.get(place.wd);
    if (this.#count >= MAX_FOLDERS) {
      if (twin === undefined) this.#engine.folders.inotifyRemove(this.#fd, place.wd);
      throw fileFault(
        "ENOSPC",
        `a sandbox watches at most ${MAX_FOLDERS} folders at once; watch a smaller folder, or end other watches`,
      );
    }
    place.twin = twin;
    this.#places.set(place.wd, place);
    this.#count++;
  }

  /** Does nothing where it is not held. */
  let(place: Place): void {
    if (this.#closed) return;
    const { wd } = place;
    let at = this.#places.get(wd);
    if (at === place) {
      if (place.twin !== undefined) this.#places.set(wd, place.twin);
      else {
        this.#places.delete(wd);
        this.#engine.folders.inotifyRemove(this.#fd, wd);
      }
    } else {
      while (at !== undefined && at.twin !== place) at = at.twin;
      if (at === undefined) return;
      at.twin = place.twin;
    }
    place.twin = undefined;
    this.#count--;
  }

  #hear(): void {
    this.#unhear = this.#engine.waits.onReadable(this.#fd, () => {
      this.#read();
      if (this.#closed) return;
      const timer = setTimeout(() => this.#hear(), BATCH_MS);
      this.#unhear = () => clearTimeout(timer);
    });
  }

  #read(): void {
    const buffer = this.#buffer;
    let length: number;
    try {
      length = readSync(this.#fd, buffer);
    } catch {
      // EAGAIN: there was nothing yet.
      return;
    }
    for (let at = 0; at < length; ) {
      const size = buffer.readUInt32LE(at + 12);
      const begin = at + HEADER_BYTES;
      const end = size === 0 ? begin : buffer.indexOf(0, begin);
      this.#tell(buffer.readInt32LE(at), buffer.readUInt32LE(at + 4), buffer.toString("utf8", begin, end));
      at = begin + size;
    }
  }

  #tell(wd: number, mask: number, name: string): void {
    if ((mask & IN.overflow) !== 0) this.#onOverflow();
    const gone = (mask & IN.ignored) !== 0;
    let place = this.#places.get(wd);
    if (gone) this.#places.delete(wd);
    while (place !== undefined) {
      const { twin } = place;
      if (gone) {
        place.twin = undefined;
        this.#count--;
      }
      place.event(mask, name);
      place = twin;
    }
  }

  close(): void {
    this.#closed = true;
    this.#unhear();
    this.#places.clear();
    // By another thread: the kernel lets go of all watches meanwhile.
    close(this.#fd, () => undefined);
  }
}
