// A tar stream into a folder of this machine; nothing is written outside of the folder. Names are bytes.
import {
  chmod,
  type FileHandle,
  link,
  lstat,
  lutimes,
  mkdir,
  open,
  symlink,
  unlink,
  utimes,
} from "node:fs/promises";
import { type Extract, extract } from "tar-stream";
import { FileError } from "../../../broker/contract/index.ts";
import {
  type ArchiveEntry,
  archiveEntry,
  componentsOf,
  type Header,
  NAME_ENCODING,
} from "../../../broker/contract/tar/entry.ts";
import { placed } from "../../../broker/contract/tar/sparse.ts";
import { utimeOf } from "../../../broker/contract/tar/utime.ts";
import { ifThere, localErrors } from "./local-errors.ts";

/** So much may wait in the parser. */
const WATER_MARK_BYTES = 256 * 1024;
const OPTIONS = { highWaterMark: WATER_MARK_BYTES, filenameEncoding: NAME_ENCODING };
const SLASH = Buffer.from("/");

/** As tar-stream gives it: its content, and its header. */
type Entry = AsyncIterable<unknown> & { header: Header };

interface Placed {
  path: Buffer;
  entry: ArchiveEntry;
}

/** Writes an archive's entries below `folder`, which is made where it is missing. Symlinks are made last, so that no
 * entry is written through one of the archive's own. Throws FileError for a name that leads outside, and that names
 * what cannot be written. `wrote` is called whenever anything there is other than before. */
export async function unpackFolder(
  source: AsyncIterable<Uint8Array>,
  folder: string | Buffer,
  wrote: () => void = () => undefined,
): Promise<void> {
  await localErrors(folder, () => mkdir(folder, { recursive: true }));
  const root = Buffer.from(folder);
  const links: Placed[] = [];
  // Where the archive has one twice, the last counts.
  const folders = new Map<string, Placed>();
  await eachEntry(source, async (content, entry) => {
    const path = below(root, entry.names);
    await localErrors(path, async () => {
      if (entry.type === "dir") {
        await makeFolders(root, entry.names, wrote);
        folders.set(path.toString("latin1"), { path, entry });
        return;
      }
      // Of the folder itself only its attributes can be told.
      if (entry.names.length === 0) return;
      await makeFolders(root, entry.names.slice(0, -1), wrote);
      if (entry.type === "symlink") links.push({ path, entry });
      else if (entry.type === "link") await hardLink(below(root, componentsOf(entry.target)), path, wrote);
      else if (entry.type === "file") await writeFile(content, entry, path, wrote);
    });
  });
  for (const { path, entry } of links) await localErrors(path, () => makeSymlink(path, entry, wrote));
  // Deepest first: what is written into a folder changes its time, and its mode may forbid writing.
  for (const { path, entry } of [...folders.values()].reverse())
    await localErrors(path, () => dress(path, entry));
}

/** The content of an archive's one file, with its holes, as the new file `path`. Throws what `unpackFolder` does. */
export async function unpackFile(source: AsyncIterable<Uint8Array>, path: Buffer): Promise<void> {
  let files = 0;
  await eachEntry(source, async (content, entry) => {
    if (entry.type === "file" && files++ === 0) await writeNew(content, entry, path);
  });
  if (files === 0) throw new FileError("the archive has no file in it", { reason: "EIO" });
}

/** Calls `take` with one entry after another; what it leaves of the content is skipped. Throws what it, the source or
 * the parser throws. */
async function eachEntry(
  source: AsyncIterable<Uint8Array>,
  take: (content: Entry, entry: ArchiveEntry) => Promise<void>,
): Promise<void> {
  const tar = extract(OPTIONS);
  const failed: unknown[] = [];
  const reading = feed(source, tar).catch((error: unknown) => {
    failed.push(error);
    // With an error: without one, whoever was at work on an entry then would wait for the next for ever.
    tar.destroy(error instanceof Error ? error : new Error(String(error)));
  });
  try {
    for await (const content of tar) {
      await take(content, archiveEntry(content.header));
      content.resume();
    }
  } catch (error) {
    tar.destroy();
    // What the parser says of its end is only what comes of the source's.
    throw failed.length > 0 ? failed[0] : error;
  }
  await reading;
  if (failed.length > 0) throw failed[0];
}

/** The archive's bytes into the parser. Throws what the source throws; the parser's own error is thrown where the entries
 * are read. */
async function feed(source: AsyncIterable<Uint8Array>, tar: Extract): Promise<void> {
  for await (const part of source) {
    if (tar.destroyed) return;
    if (!tar.write(part)) await drained(tar);
  }
  tar.end(undefined);
}

/** Resolves when more may be written, or nothing more will be. */
function drained(stream: Extract): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      stream.removeListener("drain", done);
      stream.removeListener("close", done);
      resolve();
    };
    stream.once("drain", done);
    stream.once("close", done);
  });
}

const below = (root: Buffer, names: readonly Buffer[]): Buffer =>
  Buffer.concat([root, ...names.flatMap((name) => [SLASH, name])]);

/** Makes the folders that lead to `names` and it; refuses one that is a symlink, since it may lead outside. */
async function makeFolders(root: Buffer, names: readonly Buffer[], wrote: () => void): Promise<void> {
  for (let depth = 1; depth <= names.length; depth++) {
    const path = below(root, names.slice(0, depth));
    const found = await ifThere(lstat(path));
    if (found === undefined) {
      await mkdir(path);
      wrote();
    } else if (!found.isDirectory())
      throw new FileError(`${path} is in the way of the archive's folder`, { reason: "ENOTDIR" });
  }
}

/** What is no folder; where nothing is, nothing. */
async function removeOld(path: Buffer, wrote: () => void): Promise<void> {
  await ifThere(unlink(path).then(wrote));
}

async function hardLink(existing: Buffer, path: Buffer, wrote: () => void): Promise<void> {
  const found = await lstat(existing);
  if (!found.isFile()) throw new FileError(`${existing} is not a file to link to`, { reason: "EINVAL" });
  await removeOld(path, wrote);
  await link(existing, path);
  wrote();
}

async function makeSymlink(path: Buffer, { target, mtime }: ArchiveEntry, wrote: () => void): Promise<void> {
  await removeOld(path, wrote);
  await symlink(target, path);
  wrote();
  await lutimes(path, utimeOf(mtime), utimeOf(mtime));
}

async function writeFile(
  content: Entry,
  entry: ArchiveEntry,
  path: Buffer,
  wrote: () => void,
): Promise<void> {
  // Removed first: an old symlink of that name is replaced, not followed.
  await removeOld(path, wrote);
  await writeNew(content, entry, path, wrote);
  await dress(path, entry);
}

/** An entry's content into a new file. `opened` is called when that is there. */
async function writeNew(
  content: Entry,
  entry: ArchiveEntry,
  path: Buffer,
  opened: () => void = () => undefined,
): Promise<void> {
  const file = await open(path, "wx", 0o600);
  opened();
  try {
    await writeContent(content, entry, file);
  } finally {
    await file.close();
  }
}

/** An entry's content, with its holes where it has some. */
async function writeContent(
  content: Entry,
  { sparse, names }: ArchiveEntry,
  file: FileHandle,
): Promise<void> {
  if (sparse === undefined) {
    for await (const part of content) if (part instanceof Uint8Array) await file.writeFile(part);
    return;
  }
  const name = names.map((each) => each.toString()).join("/");
  for await (const { at, data } of placed(name, sparse, content, content.header.size ?? 0))
    for (let done = 0; done < data.length; )
      done += (await file.write(data, done, data.length - done, at + done)).bytesWritten;
  await file.truncate(sparse.size);
}

async function dress(path: Buffer, { mode, mtime }: ArchiveEntry): Promise<void> {
  await utimes(path, utimeOf(mtime), utimeOf(mtime));
  await chmod(path, mode);
}
