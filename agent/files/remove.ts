// Removing a file or a tree, never through a symlink, whatever is swapped for what meanwhile.
import { lstat, rmdir, unlink } from "node:fs/promises";
import { basename, dirname } from "node:path";
import { errnoOf } from "../../broker/contract/index.ts";
import { fileFault } from "./error.ts";
import { Folder } from "./folder.ts";

/** A folder that others keep filling while it is emptied is given up after this many rounds. */
const MAX_ROUNDS = 8;

/** Empties and removes the folder `name` of `parent`. The open folders on the way down are at most the tree's depth. */
async function removeTree(parent: Folder, name: Buffer, signal: AbortSignal): Promise<void> {
  for (let round = 1; ; round++) {
    const folder = await parent.enter(name);
    try {
      for (const entry of await folder.names()) await removeEntry(folder, entry, signal);
    } finally {
      await folder.close();
    }
    try {
      await rmdir(parent.at(name));
      return;
    } catch (thrown) {
      if (errnoOf(thrown) !== "ENOTEMPTY" || round === MAX_ROUNDS) throw thrown;
    }
  }
}

async function removeEntry(parent: Folder, name: Buffer, signal: AbortSignal): Promise<void> {
  for (let round = 1; ; round++) {
    signal.throwIfAborted();
    try {
      return await unlink(parent.at(name));
    } catch (thrown) {
      const errno = errnoOf(thrown);
      if (errno === "ENOENT") return;
      // POSIX has EPERM for a folder, Linux EISDIR.
      if (errno !== "EISDIR") throw thrown;
    }
    try {
      return await removeTree(parent, name, signal);
    } catch (thrown) {
      const errno = errnoOf(thrown);
      if (errno === "ENOENT") return;
      // It was swapped for a link or a file meanwhile.
      if ((errno !== "ENOTDIR" && errno !== "ELOOP") || round === MAX_ROUNDS) throw thrown;
    }
  }
}

/** Removes what is at `path`; a symlink itself, not what it leads to. A folder needs `recursive`. Throws FileError, and
 * the signal's reason where it aborts, with some of a folder removed. `shown` is the path as it was asked for. */
export async function removePath(
  path: string,
  shown: string,
  recursive: boolean,
  signal: AbortSignal,
): Promise<void> {
  // "link/" would be the folder behind the link.
  const bare = path.replace(/[/]+(\.?[/]+)*\.?$/, "");
  const name = basename(bare);
  if (bare === "" || name === ".." || /(^|\/)\.\/*$/.test(shown))
    throw fileFault("EINVAL", `cannot remove ${shown}: name a file or folder, not "/", "." or ".."`);
  const stats = await lstat(bare);
  if (!stats.isDirectory()) return await unlink(bare);
  if (!recursive)
    throw fileFault("EISDIR", `cannot remove ${shown}: it is a folder; ask for recursive removal`);
  const parent = await Folder.open(dirname(bare));
  try {
    await removeTree(parent, Buffer.from(name), signal);
  } finally {
    await parent.close();
  }
}
