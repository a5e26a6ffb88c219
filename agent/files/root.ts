// A folder that paths do not leave: neither by "..", nor by a symlink, whatever is swapped for what meanwhile. By openat2(2)
// with RESOLVE_BENEATH, in one call; where the kernel has none, or the call might wait for a file system that does not
// answer, component by component, each from the open folder before it, by the threads for files.
import { closeSync, constants } from "node:fs";
import { type FileHandle, open, readlink } from "node:fs/promises";
import { errnoOf, type FileError } from "../../broker/contract/index.ts";
import type { Folders } from "../native/folders.ts";
import { EAGAIN, ELOOP, ENOTDIR, errno, fileFault, toFileError } from "./error.ts";
import { mayWait } from "./mounts.ts";

const { O_DIRECTORY, O_NOFOLLOW } = constants;
/** Node has no name for it: what is there, not opened. */
const O_PATH = 0o10_000_000;
/** As the kernel. */
export const MAX_SYMLINKS = 40;
/** As the kernel gives them. */
const EPERM = -1;
const EXDEV = -18;
const ENOSYS = -38;
/** EPERM and ENOSYS where it has no openat2, EAGAIN where renames keep it from telling. */
const UNABLE = new Set([EPERM, EAGAIN, ENOSYS]);

/** What a path leads to, until it is closed: `at` is a path to that very file or folder, and to what is in it. */
export interface Pin {
  at: string;
  close(): Promise<void>;
}

const procPath = (fd: number): string => `/proc/self/fd/${fd}`;

/** `path` and `root` as they were asked for. */
export const leadsOut = (path: string, root: string): FileError =>
  fileFault("EXDEV", `${path} leads out of the root ${root}, by "..", an absolute path or a symlink (EXDEV)`);

export class Root {
  readonly #handle: FileHandle;
  readonly #shown: string;
  readonly #folders: Folders | undefined;

  private constructor(handle: FileHandle, shown: string, folders: Folders | undefined) {
    this.#handle = handle;
    this.#shown = shown;
    this.#folders = folders;
  }

  /** The folder at `path`, symlinks followed. Without `folders` always component by component. Throws FileError. */
  static async open(path: string, shown: string, folders: Folders | undefined): Promise<Root> {
    try {
      return new Root(await open(path, O_PATH | O_DIRECTORY), shown, mayWait() ? undefined : folders);
    } catch (thrown) {
      throw toFileError("open the root", shown, thrown);
    }
  }

  /** What `path` leads to, the root itself where it is empty; without `links` no symlink is followed (ELOOP). Throws
   * FileError with EXDEV where it leads out, and errnos. */
  async pin(path: string, links: boolean): Promise<Pin> {
    if (path.startsWith("/")) throw leadsOut(path, this.#shown);
    if (path === "") return { at: procPath(this.#handle.fd), close: async () => {} };
    const fd = this.#folders?.beneath(this.#handle.fd, path, links);
    if (fd !== undefined && fd >= 0) return pinOf(fd);
    if (fd === EXDEV) throw leadsOut(path, this.#shown);
    if (fd !== undefined && !UNABLE.has(fd)) throw errno(fd);
    const handle = await this.#walk(path, links);
    return { at: procPath(handle.fd), close: () => handle.close() };
  }

  close(): Promise<void> {
    return this.#handle.close();
  }

  async #walk(path: string, links: boolean): Promise<FileHandle> {
    // Latin-1 keeps every byte of a link whose text is no UTF-8. The next component stands last.
    const names = Buffer.from(path).toString("latin1").split("/").reverse();
    /** The open folders below the root that lead to where it is; ".." goes back by them. */
    const open: FileHandle[] = [];
    let followed = 0;
    try {
      for (let name = names.pop(); name !== undefined; name = names.pop()) {
        if (name === "" || name === ".") continue;
        if (name === "..") {
          const left = open.pop();
          if (left === undefined) throw leadsOut(path, this.#shown);
          await left.close();
          continue;
        }
        const place = Buffer.from(`${procPath((open.at(-1) ?? this.#handle).fd)}/${name}`, "latin1");
        const found = await entered(place, names.length > 0);
        if (found !== undefined) {
          open.push(found);
          continue;
        }
        if (!links || ++followed > MAX_SYMLINKS) throw errno(ELOOP);
        const target = await targetOf(place);
        // It is no link any more: what it is now is looked at anew.
        if (target === undefined) {
          names.push(name);
          continue;
        }
        if (target.startsWith("/")) throw leadsOut(path, this.#shown);
        names.push(...target.split("/").reverse());
      }
      return open.pop() ?? (await openPath(procPath(this.#handle.fd)));
    } finally {
      for (const folder of open) await folder.close();
    }
  }
}

function pinOf(fd: number): Pin {
  let isOpen = true;
  const close = async (): Promise<void> => {
    // Twice would close another's.
    if (isOpen) closeSync(fd);
    isOpen = false;
  };
  return { at: procPath(fd), close };
}

/** As latin-1. */
async function targetOf(link: Buffer): Promise<string | undefined> {
  try {
    return (await readlink(link, { encoding: "buffer" })).toString("latin1");
  } catch (thrown) {
    if (errnoOf(thrown) !== "EINVAL") throw thrown;
    return undefined;
  }
}

const openPath = (path: string | Buffer, flags = 0): Promise<FileHandle> => open(path, O_PATH | flags);

/** What is there; undefined for a symlink. Throws ENOTDIR where more is to come behind what is no folder. */
async function entered(place: Buffer, isOnWay: boolean): Promise<FileHandle | undefined> {
  const handle = await openPath(place, O_NOFOLLOW);
  let isKept = false;
  try {
    const stats = await handle.stat();
    if (stats.isSymbolicLink()) return undefined;
    if (isOnWay && !stats.isDirectory()) throw errno(ENOTDIR);
    isKept = true;
    return handle;
  } finally {
    if (!isKept) await handle.close();
  }
}
