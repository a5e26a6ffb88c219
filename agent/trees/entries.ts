// What is in a folder, in pieces: one of very many entries keeps nobody waiting.
import { closeSync } from "node:fs";
import { readdir } from "node:fs/promises";
import { DT_DIR, eachEntry, PIECE_BYTES } from "../files/dirents.ts";
import { EAGAIN, errno } from "../files/error.ts";
import type { Folders } from "../native/folders.ts";

/** As the kernel gives it. */
const ENODATA = -61;
/** Its own name, and the one its parent has for it; each folder in it adds one, where the file system counts them. */
const OWN_LINKS = 2;

export interface EntriesOptions {
  path: string;
  /** Where the path is a symlink, what it leads to is read. */
  follow: boolean;
  /** Else only folders are told. */
  all: boolean;
  /** What the reading of the folder above it resolved to, or 0. */
  counting: number;
  /** A plain call may wait for a file system that does not answer. */
  mayWait: boolean;
  tell(name: string, isFolder: boolean): void;
  /** Comes often; others have their turn where it gives a promise. */
  breathe(): Promise<void> | undefined;
}

export class Entries {
  readonly #folders: Folders;
  readonly #piece = Buffer.allocUnsafeSlow(PIECE_BYTES);
  readonly #about = new Uint32Array(2);

  constructor(folders: Folders) {
    this.#folders = folders;
  }

  /** Resolves when all are told: to the device, where this folder's links count the folders in it, so that one below it
   * with no more than its own need not be read for folders; to 0 where they do not, as on btrfs, in what an overlay puts
   * together, and in gVisor. Throws errnos. */
  async read(options: EntriesOptions): Promise<number> {
    if (options.mayWait) return await readByThread(options);
    const about = this.#about;
    about[1] = options.all ? 0 : options.counting;
    const fd = this.#folders.open(options.path, options.follow, about);
    if (fd === ENODATA) return 0;
    if (fd === EAGAIN) return await readByThread(options);
    if (fd < 0) throw errno(fd);
    const [links = 0, device = 0] = about;
    let folders = 0;
    let length = 0;
    try {
      for (;;) {
        length = this.#folders.entries(fd, this.#piece);
        if (length === 0) return links === OWN_LINKS + folders ? device : 0;
        if (length < 0) throw errno(length);
        folders += this.#tell(length, options);
        // Before it the piece is used up: others read into it, too.
        const breath = options.breathe();
        if (breath !== undefined) await breath;
      }
    } finally {
      if (length > 0) closeSync(fd);
    }
  }

  /** How many folders there were. */
  #tell(length: number, { all, tell }: EntriesOptions): number {
    const piece = this.#piece;
    let folders = 0;
    eachEntry(piece, length, (kind, begin, end) => {
      const isFolder = kind === DT_DIR;
      if (isFolder) folders++;
      if (isFolder || all) tell(piece.toString("utf8", begin, end), isFolder);
    });
    return folders;
  }
}

/** Some 50 µs of processor dearer. */
async function readByThread({ path, all, tell, breathe }: EntriesOptions): Promise<number> {
  for (const entry of await readdir(path, { withFileTypes: true })) {
    const isFolder = entry.isDirectory();
    if (isFolder || all) tell(entry.name, isFolder);
    const breath = breathe();
    if (breath !== undefined) await breath;
  }
  return 0;
}
