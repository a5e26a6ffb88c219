// Where unpacked entries go. No entry leaves the folder: names are resolved from the open folder, component by
// component, and a symlink on the way is refused, whether the archive brought it or it was there before.
import { constants } from "node:fs";
import {
  type FileHandle,
  lchown,
  link,
  lstat,
  lutimes,
  mkdir,
  open,
  rename,
  rm,
  symlink,
} from "node:fs/promises";
import { errnoOf } from "../../broker/contract/index.ts";
import { type ArchiveEntry, componentsOf } from "../../broker/contract/tar/entry.ts";
import { placed } from "../../broker/contract/tar/sparse.ts";
import { utimeOf } from "../../broker/contract/tar/utime.ts";
import { DIRECT_BYTES, Direct, putFile } from "./direct.ts";
import { draftName } from "./draft.ts";
import { fileFault } from "./error.ts";
import type { Folder } from "./folder.ts";
import { writeAll } from "./write-all.ts";

const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
/** Folders get their mode and time at the end, when nothing more is put into them; so many are remembered. */
const MAX_FOLDERS = 1_000_000;

export class Destination {
  readonly #root: Folder;
  readonly #owner: boolean;
  readonly #made: boolean;
  /** The folder that the last entry went into, and those above it: the next one mostly goes there too. */
  readonly #open: { name: Buffer; folder: Folder }[] = [];
  /** By name: where the archive has one twice, the last counts. In the order of their first. */
  readonly #folders = new Map<string, ArchiveEntry>();
  readonly #direct = new Direct();
  #touched: boolean;

  /** `owner`: keep the archive's; `made`: `root` is new. */
  constructor(root: Folder, { owner, made }: { owner: boolean; made: boolean }) {
    this.#root = root;
    this.#owner = owner;
    this.#made = made;
    this.#touched = made;
  }

  /** Whether anything is other than before. */
  get touched(): boolean {
    return this.#touched;
  }

  /** `size` is the content's. */
  async put(entry: ArchiveEntry, content: AsyncIterable<unknown>, size: number): Promise<void> {
    const name = entry.names.at(-1);
    if (entry.type === "skip") return;
    if (entry.type === "dir") {
      // "./" is the folder itself: one that was there has its own mode and owner.
      if (name === undefined && !this.#made) return;
      await this.#enter(entry.names);
      if (this.#folders.set(joined(entry.names, "latin1"), entry).size > MAX_FOLDERS)
        throw fileFault("E2BIG", `the archive has more than ${MAX_FOLDERS} folders`);
      return;
    }
    if (name === undefined) return;
    // Made under a hidden name and moved to its place, so that nothing is seen half, and nothing is written through
    // what was there: a symlink, or another name of a hard-linked file.
    const source = entry.type === "link" ? await this.#linkSource(entry.target) : undefined;
    try {
      const folder = await this.#enter(entry.names.slice(0, -1));
      const draft = folder.at(Buffer.from(draftName()));
      if (
        entry.type === "file" &&
        entry.sparse === undefined &&
        size <= DIRECT_BYTES &&
        this.#direct.allowed()
      ) {
        const bytes = await wholeOf(content, size);
        await this.#direct.turn();
        const places = { draft, path: folder.at(name) };
        this.#direct.run(() => putFile(places, entry, this.#owner, bytes));
        this.#touched = true;
        return;
      }
      let placed = false;
      try {
        if (source !== undefined) await link(source.path, draft);
        else if (entry.type === "symlink") await this.#symlink(draft, entry);
        else await this.#file(draft, entry, content, size);
        await rename(draft, folder.at(name));
        this.#touched = true;
        // Renaming one name of a file onto another of it does nothing, and leaves both.
        placed = source === undefined;
      } finally {
        if (!placed) await rm(draft, { force: true });
      }
    } catch (thrown) {
      throw inTheWay(thrown, entry.names);
    } finally {
      await source?.folder.close();
    }
  }

  /** Modes, owners and times of the folders, the innermost first. */
  async finish(): Promise<void> {
    const folders = [...this.#folders.values()].reverse();
    this.#folders.clear();
    for (const entry of folders) {
      const { handle } = await this.#enter(entry.names);
      await this.#dress(handle, entry);
    }
  }

  async close(): Promise<void> {
    for (const { folder } of this.#open.splice(0)) await folder.close();
    await this.#root.close();
  }

  /** The folder at `names`, made where it is missing. */
  async #enter(names: readonly Buffer[]): Promise<Folder> {
    let depth = 0;
    while (depth < names.length && this.#open[depth]?.name.equals(names[depth] ?? Buffer.alloc(0))) depth++;
    for (const { folder } of this.#open.splice(depth).reverse()) await folder.close();
    for (const name of names.slice(depth)) {
      const parent = this.#open.at(-1)?.folder ?? this.#root;
      if (await makeFolder(parent, name)) this.#touched = true;
      const folder = await enterFolder(parent, name, names);
      this.#open.push({ name, folder });
    }
    return this.#open.at(-1)?.folder ?? this.#root;
  }

  async #linkSource(target: Buffer): Promise<{ folder: Folder; path: Buffer }> {
    const names = componentsOf(target);
    const name = names.at(-1);
    if (name === undefined) throw fileFault("EINVAL", "the archive has a hard link to nothing");
    // A folder of its own: going to the new name closes those on the way to the first.
    const folder = await (await this.#enter(names.slice(0, -1))).again();
    const path = folder.at(name);
    const isFolder = await lstat(path).then(
      (stats) => stats.isDirectory(),
      () => false,
    );
    if (!isFolder) return { folder, path };
    await folder.close();
    throw fileFault("EISDIR", `the archive has a hard link to the folder ${target.toString()}`);
  }

  async #symlink(draft: Buffer, entry: ArchiveEntry): Promise<void> {
    await symlink(entry.target, draft);
    if (this.#owner) await lchown(draft, entry.uid, entry.gid);
    await lutimes(draft, utimeOf(entry.mtime), utimeOf(entry.mtime));
  }

  async #file(
    draft: Buffer,
    entry: ArchiveEntry,
    content: AsyncIterable<unknown>,
    size: number,
  ): Promise<void> {
    const file = await open(draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
    try {
      const { sparse } = entry;
      if (sparse === undefined) {
        for await (const part of content) if (part instanceof Uint8Array) await writeAll(file, part);
      } else {
        const parts = placed(joined(entry.names, "utf8"), sparse, content, size);
        for await (const { at, data } of parts) await writeAll(file, data, at);
        await file.truncate(sparse.size);
      }
      await this.#dress(file, entry);
    } finally {
      await file.close();
    }
  }

  async #dress(file: FileHandle, entry: ArchiveEntry): Promise<void> {
    // Before the mode: changing the owner clears the set-uid bits.
    if (this.#owner) await file.chown(entry.uid, entry.gid);
    await file.chmod(entry.mode);
    await file.utimes(utimeOf(entry.mtime), utimeOf(entry.mtime));
  }
}

/** Mostly it is one part already. */
async function wholeOf(content: AsyncIterable<unknown>, size: number): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  if (size > 0) for await (const part of content) if (part instanceof Uint8Array) parts.push(part);
  const [only] = parts;
  return parts.length === 1 && only !== undefined ? only : Buffer.concat(parts);
}

/** As latin1 each name is a string of its own; as UTF-8 it can be shown, and two that are none may look alike. */
const joined = (names: readonly Buffer[], encoding: "latin1" | "utf8"): string =>
  names.map((name) => name.toString(encoding)).join("/");
const shownOf = (names: readonly Buffer[]): string => JSON.stringify(joined(names, "utf8"));

/** A folder where a file is to be, or the other way round. */
function inTheWay(thrown: unknown, names: readonly Buffer[]): unknown {
  const errno = errnoOf(thrown);
  if (errno !== "EISDIR" && errno !== "ENOTEMPTY") return thrown;
  return fileFault(errno, `the archive's entry ${shownOf(names)} would replace a folder; remove it first`);
}

/** Whether it was not there. */
async function makeFolder(parent: Folder, name: Buffer): Promise<boolean> {
  try {
    await mkdir(parent.at(name));
    return true;
  } catch (thrown) {
    if (errnoOf(thrown) !== "EEXIST") throw thrown;
    return false;
  }
}

async function enterFolder(parent: Folder, name: Buffer, names: readonly Buffer[]): Promise<Folder> {
  try {
    return await parent.enter(name);
  } catch (thrown) {
    const errno = errnoOf(thrown);
    if (errno !== "ENOTDIR" && errno !== "ELOOP") throw thrown;
    throw fileFault(
      errno,
      `the archive's entry ${shownOf(names)} leads through ${shownOf([name])}, which is a symlink or a file; remove it first`,
    );
  }
}
