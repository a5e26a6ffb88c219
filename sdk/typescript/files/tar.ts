// Folders of this machine as tar streams, both ways; nothing is written outside of the folder.
import { createReadStream } from "node:fs";
import {
  chmod,
  link,
  lstat,
  mkdir,
  open,
  readdir,
  readlink,
  symlink,
  unlink,
  utimes,
} from "node:fs/promises";
import { dirname, join, normalize, relative, sep } from "node:path";
import { type Extract, extract, type Header, type Pack, pack } from "tar-stream";
import { FileError } from "../../../broker/contract/index.ts";
import { localError, localErrors } from "./local-errors.ts";

/** The folder's content, names relative to it, with modes, links and times. What is neither file, folder nor link
 * is left out. A file that shrinks meanwhile fails the whole. */
export async function* packFolder(folder: string): AsyncGenerator<Uint8Array, void, void> {
  const tar = pack();
  // Awaited through the stream: an error destroys it, and the loop below throws it.
  void addTree(tar, folder, folder).then(
    () => tar.finalize(),
    (error: Error) => tar.destroy(localError(folder, error)),
  );
  for await (const part of tar) yield part as Uint8Array;
}

type NewHeader = Partial<Header> & Pick<Header, "name">;

async function addTree(tar: Pack, root: string, folder: string): Promise<void> {
  const entries = await readdir(folder);
  for (const entry of entries.sort()) {
    const path = join(folder, entry);
    const found = await lstat(path);
    const header = { name: relative(root, path), mode: found.mode & 0o7777, mtime: found.mtime };
    if (found.isDirectory()) {
      await add(tar, { ...header, name: `${header.name}/`, type: "directory" });
      await addTree(tar, root, path);
    } else if (found.isSymbolicLink()) {
      await add(tar, { ...header, type: "symlink", linkname: await readlink(path) });
    } else if (found.isFile()) {
      await addFile(tar, { ...header, type: "file", size: found.size }, path);
    }
  }
}

function add(tar: Pack, header: NewHeader): Promise<void> {
  return new Promise((resolve, reject) => {
    // Of a file's entry without content the stream would wait for an end.
    const done = (error?: Error | null) => (error ? reject(error) : resolve());
    if (header.type === "file") tar.entry(header, Buffer.alloc(0), done);
    else tar.entry(header, done);
  });
}

async function addFile(tar: Pack, header: NewHeader & { size: number }, path: string): Promise<void> {
  if (header.size === 0) return await add(tar, header);
  const entry = tar.entry(header);
  const written = new Promise<void>((resolve, reject) => {
    entry.once("close", resolve);
    entry.once("error", reject);
  });
  // Not further than its size when it was looked at: a log that grows meanwhile would break the archive.
  for await (const part of createReadStream(path, { end: header.size - 1 })) {
    if (!entry.write(part)) await drained(entry);
  }
  entry.end(undefined);
  await written;
}

interface Draining {
  once(event: "drain" | "close", then: () => void): unknown;
  removeListener(event: "drain" | "close", then: () => void): unknown;
}

/** Resolves when more may be written, or nothing more will be. */
function drained(stream: Draining): Promise<void> {
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

interface Later {
  path: string;
  target: string;
}

/** Writes an archive's entries below `folder`, which is made where it is missing. Symlinks are made last, so that no
 * entry is written through one of the archive's own. Throws FileError for a name that leads outside. */
export function unpackFolder(source: AsyncIterable<Uint8Array>, folder: string): Promise<void> {
  return localErrors(folder, () => unpack(source, folder));
}

async function unpack(source: AsyncIterable<Uint8Array>, folder: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  const tar = extract();
  const reading = feed(source, tar);
  const links: Later[] = [];
  const folders: { path: string; header: Header }[] = [];
  try {
    for await (const entry of tar) {
      const { header } = entry;
      const path = inside(folder, header.name);
      if (path !== folder) await realParents(folder, path);
      if (header.type === "symlink") links.push({ path, target: header.linkname ?? "" });
      else if (header.type === "directory") {
        await mkdir(path, { recursive: true });
        folders.push({ path, header });
      } else if (header.type === "link") await hardLink(inside(folder, header.linkname ?? ""), path);
      else if (header.type === "file" || header.type === "contiguous-file") {
        await writeEntry(entry, header, path);
      }
      entry.resume();
    }
  } catch (error) {
    tar.destroy();
    throw error;
  }
  await reading;
  for (const { path, target } of links) {
    await removeOld(path);
    await symlink(target, path);
  }
  // Deepest first: what is written into a folder changes its time, and its mode may forbid writing.
  for (const { path, header } of folders.reverse()) await setAttributes(path, header);
}

/** The archive's bytes into the parser. Its error, or the source's, is thrown where the entries are read. */
async function feed(source: AsyncIterable<Uint8Array>, tar: Extract): Promise<void> {
  try {
    for await (const part of source) {
      if (tar.destroyed) return;
      if (!tar.write(part)) await drained(tar);
    }
    tar.end(undefined);
  } catch (error) {
    tar.destroy(error instanceof Error ? error : new Error(String(error)));
  }
}

function inside(folder: string, name: string): string {
  const path = normalize(join(folder, name));
  const clean = path.endsWith(sep) ? path.slice(0, -1) : path;
  const root = normalize(folder).replace(/\/+$/, "");
  if (clean !== root && !clean.startsWith(root + sep)) {
    throw new FileError(`the archive's entry ${JSON.stringify(name)} leads outside of the folder`, {
      reason: "EINVAL",
    });
  }
  return clean === root ? folder : clean;
}

/** Makes the folders above `path`; refuses one that is a symlink, since it may lead outside. */
async function realParents(folder: string, path: string): Promise<void> {
  const parts = relative(folder, dirname(path))
    .split(sep)
    .filter((part) => part !== "");
  let at = folder;
  for (const part of parts) {
    at = join(at, part);
    const found = await lstat(at).catch(() => undefined);
    if (found === undefined) await mkdir(at);
    else if (!found.isDirectory()) {
      throw new FileError(`${at} is in the way of the archive's folder`, { reason: "ENOTDIR" });
    }
  }
}

/** What is no folder; where nothing is, nothing. */
async function removeOld(path: string): Promise<void> {
  const found = await lstat(path).catch(() => undefined);
  if (found !== undefined) await unlink(path);
}

async function hardLink(existing: string, path: string): Promise<void> {
  const found = await lstat(existing);
  if (!found.isFile()) throw new FileError(`${existing} is not a file to link to`, { reason: "EINVAL" });
  await removeOld(path);
  await link(existing, path);
}

async function writeEntry(entry: AsyncIterable<unknown>, header: Header, path: string): Promise<void> {
  // Removed first: an old symlink of that name is replaced, not followed.
  await removeOld(path);
  const file = await open(path, "wx", 0o600);
  try {
    for await (const part of entry) await file.writeFile(part as Uint8Array);
  } finally {
    await file.close();
  }
  await setAttributes(path, header);
}

async function setAttributes(path: string, header: Header): Promise<void> {
  if (header.mtime !== undefined) await utimes(path, header.mtime, header.mtime);
  if (header.mode !== undefined) await chmod(path, header.mode & 0o7777);
}
