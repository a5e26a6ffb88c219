// A folder or a file as a tar stream, read while it is sent: memory does not grow with the tree.
import { constants, lstatSync, type Stats } from "node:fs";
import { lstat, readlink, stat } from "node:fs/promises";
import { basename, resolve } from "node:path";
import { errnoOf } from "../../broker/contract/index.ts";
import { entryOf, paddingOf, TRAILER, tarHeader } from "../../broker/contract/tar/header.ts";
import { FirstNames } from "../../broker/contract/tar/names.ts";
import { bytesIn, type Region, sparseHeader } from "../../broker/contract/tar/sparse.ts";
import type { ByteSource, LeftOut } from "../../broker/endpoint/executor.ts";
import { giveBlock, takeBlock } from "../../broker/link/blocks.ts";
import type { Folders } from "../native/folders.ts";
import { DIRECT_BYTES, Direct, getFile } from "./direct.ts";
import { fileFault, toFileError } from "./error.ts";
import { Folder } from "./folder.ts";
import { regionsOf } from "./holes.ts";
import { mayWait } from "./mounts.ts";
import { openToRead } from "./open.ts";
import { contentOf, inOne, type Piece, plain } from "./piece.ts";
import { becameShorter, type Opened, refuseCutOff } from "./shorter.ts";

const { O_NOFOLLOW } = constants;

interface Level {
  folder: Folder;
  /** The folder's name in the archive, with a slash at the end; empty for the packed folder itself. */
  prefix: Buffer;
  names: Buffer[];
}

/** So many bytes of names are told. */
const TOLD_BYTES = 64 * 1024;

class Skipped implements LeftOut {
  count = 0;
  readonly paths: string[] = [];
  #room = TOLD_BYTES;

  add(name: Buffer): void {
    this.count++;
    this.#room -= name.length;
    if (this.#room >= 0) this.paths.push(name.toString());
  }
}

/** Walks the tree depth first, each folder in the order of its names' bytes. */
class Walk {
  readonly #levels: Level[] = [];
  readonly #firstNames = new FirstNames();
  readonly #direct: Direct;
  readonly #folders: Folders | undefined;
  readonly #shown: string;
  readonly skipped = new Skipped();

  /** `shown`: the packed path, for errors. */
  constructor(folders: Folders | undefined, shown: string) {
    // Looked at once: it is a table to read, and on some file systems many a file may have holes.
    const waits = mayWait();
    this.#direct = new Direct(waits);
    this.#folders = waits ? undefined : folders;
    this.#shown = shown;
  }

  async enter(folder: Folder, prefix: Buffer): Promise<void> {
    // Last first, since `next` takes them from the end.
    const names = (await folder.names()).sort((a, b) => b.compare(a));
    this.#levels.push({ folder, prefix, names });
  }

  async next(): Promise<Piece | undefined> {
    for (let level = this.#levels.at(-1); level !== undefined; level = this.#levels.at(-1)) {
      const name = level.names.pop();
      if (name === undefined) {
        this.#levels.pop();
        await level.folder.close();
        continue;
      }
      const piece = await this.#piece(level, name);
      if (piece !== undefined) return piece;
    }
    return undefined;
  }

  async close(): Promise<void> {
    for (const level of this.#levels.splice(0)) await level.folder.close();
  }

  /** Undefined for what is left out (sockets, fifos, devices) and for what is gone meanwhile. */
  async #piece(level: Level, name: Buffer): Promise<Piece | undefined> {
    const full = Buffer.concat([level.prefix, name]);
    try {
      const path = level.folder.at(name);
      await this.#direct.turn();
      const stats = this.#direct.allowed() ? this.#direct.run(() => lstatSync(path)) : await lstat(path);
      if (stats.isSymbolicLink())
        return plain({
          ...entryOf(stats, "symlink", full),
          target: await readlink(path, { encoding: "buffer" }),
        });
      if (stats.isFile())
        return this.#small(path, full, stats) ?? (await this.filePiece(path, full, O_NOFOLLOW));
      if (!stats.isDirectory()) {
        this.skipped.add(full);
        return undefined;
      }
      await this.enter(await level.folder.enter(name), Buffer.concat([full, Buffer.from("/")]));
      return plain(entryOf(stats, "dir", full));
    } catch (thrown) {
      if (errnoOf(thrown) === "ENOENT") return undefined;
      throw toFileError("pack", full.toString(), thrown);
    }
  }

  /** Header, content and padding of a small file in one. */
  #small(path: Buffer, full: Buffer, { size }: Stats): Piece | undefined {
    if (size > DIRECT_BYTES || !this.#direct.allowed()) return undefined;
    const got = this.#direct.run(() => getFile(path, () => this.#shownOf(full)));
    if (got === undefined) return undefined;
    return inOne(entryOf(got.stats, "file", full), got.content);
  }

  #shownOf(full: Buffer): string {
    return `${this.#shown.replace(/\/$/, "")}/${full}`;
  }

  async filePiece(
    path: string | Buffer,
    full: Buffer,
    flags = 0,
    shown = this.#shownOf(full),
  ): Promise<Piece | undefined> {
    const file = await openToRead(path, flags);
    try {
      const stats = await file.stat();
      if (!stats.isFile()) {
        await file.close();
        return undefined;
      }
      const first =
        stats.nlink < 2 ? undefined : this.#firstNames.of(await file.stat({ bigint: true }), full);
      if (first === undefined) return await this.#content({ file, began: stats, path: shown }, full);
      await file.close();
      return plain({ ...entryOf(stats, "link", full), target: first });
    } catch (thrown) {
      await file.close().catch(() => {});
      throw thrown;
    }
  }

  async #content(opened: Opened, full: Buffer): Promise<Piece> {
    const { file, began, path } = opened;
    const { size, blocks } = began;
    const entry = entryOf(began, "file", full);
    const regions = await regionsOf(file.fd, began, this.#folders);
    if (regions !== undefined) {
      // What was cut off before its regions were asked for would be a hole.
      if ((await file.stat()).size < size) throw becameShorter("pack", path);
      return { header: sparseHeader(entry, regions), opened, regions };
    }
    if (blocks > 0 || size === 0 || size > DIRECT_BYTES)
      return { header: tarHeader(entry), opened, regions: [{ offset: 0, length: size }] };
    // Its size may say nothing, as of those of /sys, and the header has to.
    const content = await contentOf(opened);
    await file.close();
    return inOne(entry, content);
  }
}

class PackSource implements ByteSource {
  readonly #walk: Walk;
  readonly #path: string;
  #header: Buffer = Buffer.alloc(0);
  #opened: Opened | undefined;
  /** Those that are to come, the next one last. */
  #regions: Region[] = [];
  #padding = 0;
  #ended = false;
  #closed = false;

  constructor(walk: Walk, path: string, first: Piece | undefined) {
    this.#walk = walk;
    this.#path = path;
    this.#begin(first);
  }

  #begin(piece: Piece | undefined): void {
    this.#header = piece?.header ?? Buffer.alloc(0);
    this.#opened = piece?.opened;
    const regions = piece?.regions ?? [];
    this.#padding = paddingOf(bytesIn(regions));
    this.#regions = regions.filter(({ length }) => length > 0).reverse();
  }

  get leftOut(): LeftOut {
    return this.#walk.skipped;
  }

  async read(max: number): Promise<Uint8Array | undefined> {
    const part = takeBlock(max);
    let filled = 0;
    try {
      while (filled < max) {
        const took = await this.#fill(part.subarray(filled));
        if (took > 0) filled += took;
        else if (!(await this.#advance())) break;
      }
    } catch (thrown) {
      throw toFileError("pack", this.#path, thrown);
    }
    if (filled >= max / 2) return part.subarray(0, filled);
    // A short part must not hold the whole block.
    const short = filled === 0 ? undefined : new Uint8Array(part.subarray(0, filled));
    giveBlock(part);
    return short;
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.#closeFile();
    await this.#walk.close();
  }

  /** Puts what is next of the current entry into `room`; 0 when the entry is done. */
  async #fill(room: Buffer): Promise<number> {
    if (this.#header.length > 0) {
      const took = this.#header.copy(room);
      this.#header = this.#header.subarray(took);
      return took;
    }
    const region = this.#regions.at(-1);
    if (region !== undefined && this.#opened !== undefined) {
      const want = Math.min(region.length, room.length);
      const { bytesRead } = await this.#opened.file.read(room, 0, want, region.offset);
      if (bytesRead === 0) {
        await refuseCutOff("pack", this.#opened);
        // Its size says more than it has, and the header has promised that.
        room.fill(0, 0, want);
      }
      const took = bytesRead === 0 ? want : bytesRead;
      this.#regions.pop();
      if (took < region.length)
        this.#regions.push({ offset: region.offset + took, length: region.length - took });
      return took;
    }
    await this.#closeFile();
    const took = Math.min(this.#padding, room.length);
    room.fill(0, 0, took);
    this.#padding -= took;
    return took;
  }

  async #advance(): Promise<boolean> {
    if (this.#ended) return false;
    const piece = await this.#walk.next();
    this.#ended = piece === undefined;
    this.#begin(piece);
    if (piece === undefined) this.#header = TRAILER;
    return true;
  }

  async #closeFile(): Promise<void> {
    const opened = this.#opened;
    this.#opened = undefined;
    await opened?.file.close();
  }
}

/** Packs what is at `path` (a symlink there is followed, those below are kept): of a folder its content, with names
 * relative to it; of a file that one entry, under its name in `shown`, the path as it was asked for. Sockets, fifos and
 * devices are left out, and told. With `folders`, the engine's, holes of files stay holes, unless a file system of this
 * machine might not answer. Throws FileError; where a file is cut off while it is read, by `read` with the reason ESTALE. */
export async function openPack(
  path: string,
  shown: string,
  folders: Folders | undefined,
): Promise<ByteSource> {
  const stats = await stat(path);
  const walk = new Walk(folders, shown);
  if (stats.isDirectory()) {
    const folder = await Folder.open(path);
    await walk.enter(folder, Buffer.alloc(0));
    return new PackSource(walk, shown, undefined);
  }
  const piece = stats.isFile()
    ? await walk.filePiece(path, Buffer.from(basename(resolve(shown))), 0, shown)
    : undefined;
  if (piece === undefined)
    throw fileFault("EINVAL", `cannot pack ${shown}: it is neither a file nor a folder`);
  return new PackSource(walk, shown, piece);
}
