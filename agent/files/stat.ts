// stat and list: what a path is, and what stands in a folder, in pages.
import type { Stats } from "node:fs";
import { lstat, readlink, stat } from "node:fs/promises";
import { errnoOf, type FileStat, type ListDirAnswer } from "../../broker/contract/index.ts";
import type { Folders } from "../native/folders.ts";
import { Direct } from "./direct.ts";
import type { Listings } from "./listings.ts";
import { behind } from "./window.ts";

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

export interface List {
  /** Entries behind that name. */
  after: string | undefined;
  /** At most so many. */
  limit: number;
  signal: AbortSignal;
  listings: Listings;
  /** The engine's. */
  folders: Folders | undefined;
}

/** A page of the entries of the folder at `path`, in order of their names (by UTF-16 code unit). Symlinks are told as such. An
 * entry's `path` is its name; bytes that are not UTF-8 show as U+FFFD. */
export async function listFolder(path: string, asked: List): Promise<ListDirAnswer> {
  const { after, limit, signal, listings, folders } = asked;
  const from = after === undefined ? undefined : behind(after);
  const many = limit + 1;
  const direct = new Direct();
  const listing = await listings.read({ path, follow: true, from, many, direct, folders, signal });
  signal.throwIfAborted();
  const { window, first } = listing;
  const end = Math.min(first + limit, window.length);
  const more = end < window.length || !window.isLast;
  if (more) listings.keep(listing);
  else listings.drop(listing);
  const prefix = Buffer.from(`${path}/`);
  const entries: FileStat[] = [];
  // The first alone: where the file system does not answer, one thread waits for it, and not all that there are.
  for (let at = first; at < end; ) {
    signal.throwIfAborted();
    const part: Promise<FileStat | undefined>[] = [];
    for (const until = Math.min(at === first ? at + 1 : at + STATS_AT_ONCE, end); at < until; at++)
      part.push(statPath(Buffer.concat([prefix, window.raw(at)]), window.name(at), false).catch(ifGone));
    const stats = await Promise.all(part);
    for (const entry of stats) if (entry !== undefined) entries.push(entry);
  }
  return { entries, more };
}

/** What was removed between the listing and the look at it is not there. */
function ifGone(thrown: unknown): undefined {
  if (errnoOf(thrown) !== "ENOENT") throw thrown;
}
