// An open folder as the start of paths: what stands below it cannot be swapped for a symlink in between.
// Node has no openat(2); `/proc/self/fd/N/name` is resolved by the kernel from the open folder, which is the same.
import { constants } from "node:fs";
import { type FileHandle, open, readdir } from "node:fs/promises";

const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW } = constants;

export class Folder {
  readonly #handle: FileHandle;
  readonly #prefix: Buffer;

  private constructor(handle: FileHandle) {
    this.#handle = handle;
    this.#prefix = Buffer.from(`/proc/self/fd/${handle.fd}/`);
  }

  /** Opens the folder at `path`, symlinks followed. */
  static async open(path: string | Buffer): Promise<Folder> {
    return new Folder(await open(path, O_RDONLY | O_DIRECTORY));
  }

  /** Opens a folder in this one; throws ENOTDIR or ELOOP where `name` is a symlink. */
  async enter(name: Buffer): Promise<Folder> {
    return new Folder(await open(this.at(name), O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  }

  /** This folder once more, to be closed on its own. */
  async again(): Promise<Folder> {
    return new Folder(await open(this.#prefix, O_RDONLY | O_DIRECTORY));
  }

  /** The path of the entry `name` (one component, bytes as the file system has them). */
  at(name: Buffer): Buffer {
    return Buffer.concat([this.#prefix, name]);
  }

  /** The names in it, as bytes. (Bun 1.4 gives no kinds together with bytes.) */
  names(): Promise<Buffer[]> {
    return readdir(this.#prefix, { encoding: "buffer" });
  }

  get handle(): FileHandle {
    return this.#handle;
  }

  close(): Promise<void> {
    return this.#handle.close();
  }
}
