// stat and list: what a path is, and what stands in a folder, in pages.
import type { Stats } from "node:fs";
import { lstat, readdir, readlink, stat } from "node:fs/promises";
import { errnoOf, type FileStat, type ListDirAnswer } from "../../broker/contract/index.ts";

/** Stats that are asked for at the same time: enough to keep the file system busy, few enough for the thread pool. */
const STATS_AT_ONCE = 32;

/** Of stat(2)'s count. */
export const BLOCK_BYTES = 512;

export function typeOf(stats: Stats): FileStat["type"] {
  if (stats.isFile()) return "file";
  if (stats.isDirectory()) return "dir";
  if (stats.isSymbolicLink()) return "symlink";
  if (stats.isFIFO()) return "fifo";
  if (stats.isSocket()) return "socket";
  return stats.isBlockDevice() ? "block" : "char";
}

/** `shown` is the path in the answer; `path` is where it is read. With `follow`, of what a symlink leads to. */
export async function statPath(path: string | Buffer, shown: string, follow: boolean): Promise<FileStat> {
  const stats = await (follow ? stat(path) : lstat(path));
  const answer: FileStat = {
    path: shown,
    type: typeOf(stats),
    size: stats.size,
    mode: stats.mode & 0o7777,
    uid: stats.uid,
    gid: stats.gid,
    mtime_ms: stats.mtimeMs,
  };
  if (answer.type === "file") answer.allocated_bytes = stats.blocks * BLOCK_BYTES;
  if (answer.type === "symlink") answer.target = (await readlink(path)).toString();
  return answer;
}

/** The entries of the folder at `path` behind the name `after`, in order of their names (by UTF-16 code unit), at
 * most `limit`. Symlinks are told as such. An entry's `path` is its name; bytes that are not UTF-8 show as U+FFFD. */
export async function listFolder(
  path: string,
  after: string | undefined,
  limit: number,
  signal: AbortSignal,
): Promise<ListDirAnswer> {
  const names: [shown: string, name: Buffer][] = [];
  for (const name of await readdir(path, { encoding: "buffer" })) {
    const shown = name.toString();
    if (after === undefined || shown > after) names.push([shown, name]);
  }
  signal.throwIfAborted();
  names.sort(([a, x], [b, y]) => (a < b ? -1 : a > b ? 1 : x.compare(y)));
  const page = names.slice(0, limit);
  const prefix = Buffer.from(`${path}/`);
  const entries: FileStat[] = [];
  // The first alone: where the file system does not answer, one thread waits for it, and not all that there are.
  for (let at = 0; at < page.length; ) {
    signal.throwIfAborted();
    const count = at === 0 ? 1 : STATS_AT_ONCE;
    const part = page.slice(at, at + count);
    at += count;
    const stats = await Promise.all(
      part.map(([shown, name]) => statPath(Buffer.concat([prefix, name]), shown, false).catch(ifGone)),
    );
    for (const entry of stats) if (entry !== undefined) entries.push(entry);
  }
  return { entries, more: names.length > limit };
}

/** What was removed between the listing and the look at it is not there. */
function ifGone(thrown: unknown): undefined {
  if (errnoOf(thrown) !== "ENOENT") throw thrown;
}
