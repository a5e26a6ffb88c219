// Trees of executor.ts on the real file system: hash, attributes, glob, search and watch, bounded in time and size.
import { createHash } from "node:crypto";
import { chmod, chown, lchown, lutimes, utimes } from "node:fs/promises";
import {
  type GlobAnswer,
  type HashAnswer,
  newUuidV7,
  type SearchAnswer,
} from "../../broker/contract/index.ts";
import { utimeOf } from "../../broker/contract/tar/utime.ts";
import type { Attributes, Trees } from "../../broker/endpoint/executor.ts";
import { fileFault, withPath } from "../files/error.ts";
import {
  type Ground,
  groundBeneath,
  namesFolder,
  openGround,
  withEntry,
  withTarget,
} from "../files/ground.ts";
import { Listings } from "../files/listings.ts";
import { openFile, refusePipes } from "../files/open.ts";
import { refuseCutOff } from "../files/shorter.ts";
import type { Engine } from "../native/engine.ts";
import type { Folders } from "../native/folders.ts";
import { scopeOf } from "./scope.ts";
import { type Match, searchFile } from "./search.ts";
import { walk } from "./walk.ts";
import { Watches } from "./watches.ts";

const PART_BYTES = 1024 * 1024;
/** A search or glob that is not through by then answers what it has, and that there may be more. */
const LOOK_MS = 20_000;
/** Of an answer's texts: with what encoding adds it stays far below the 1 MiB of a message. */
const MAX_ANSWER_CHARACTERS = 256 * 1024;

export interface TreesOptions {
  /** Where relative paths begin. */
  cwd: string;
  engine: Engine;
  /** A watch that nobody asks for this long ends. */
  watchIdleMs?: number;
  /** One answer of a search or glob ends after this, with what it has. */
  lookMs?: number;
  /** What resolves paths beneath a root: the engine's, or component by component. */
  beneath?: Folders | "walk";
  /** What is kept of folders that a page ended in. */
  listings?: Listings;
}

export function createTrees({
  cwd,
  engine,
  watchIdleMs = 60_000,
  lookMs = LOOK_MS,
  beneath = engine.folders,
  listings = new Listings(),
}: TreesOptions): Trees {
  const watches = new Watches(engine, watchIdleMs);
  const folders = beneath === "walk" ? undefined : beneath;
  return treesOn(openGround(cwd), watches, { folders, lookMs, listings });
}

/** What all walks have. */
interface Means {
  folders: Folders | undefined;
  lookMs: number;
  listings: Listings;
}

function treesOn(ground: Ground, watches: Watches, means: Means): Trees {
  return {
    hash: (path, signal) =>
      withPath("hash", path, () => withTarget(ground, path, (at) => hashFile(at, path, signal))),
    setAttributes: (attributes) =>
      withPath("set attributes of", attributes.path, () => setAttributes(ground, attributes)),
    glob: (request) =>
      withPath("glob in", request.path, () =>
        withTarget(ground, request.path, (root) => glob({ ...request, ...means, ground, root })),
      ),
    search: (request) =>
      withPath("search in", request.path, () =>
        withTarget(ground, request.path, (root) => search({ ...request, ...means, ground, root })),
      ),
    watch: ({ path, recursive, transfer = newUuidV7(), signal }) =>
      withPath("watch", path, () => watches.begin({ ground, path, recursive, id: transfer, signal })),
    changes: ({ path, cursor, waitMs }) =>
      withPath("watch", path, () => watches.next(ground, path, cursor, waitMs)),
    endWatch: async (transfer) => watches.end(transfer),
    beneath: (root) => treesOn(groundBeneath(ground, root, means.folders), watches, means),
    close: () => watches.close(),
  };
}

async function hashFile(path: string, shown: string, signal: AbortSignal): Promise<HashAnswer> {
  await refusePipes("hash", path, shown);
  await using file = await openFile("hash", path, shown);
  const began = await file.stat();
  const hash = createHash("sha256");
  const part = Buffer.allocUnsafe(PART_BYTES);
  for (let size = 0; ; ) {
    signal.throwIfAborted();
    const { bytesRead } = await file.read(part, 0, PART_BYTES, null);
    if (bytesRead === 0) {
      if (size < began.size) await refuseCutOff("hash", { file, began, path: shown });
      return { sha256: hash.digest("hex"), size };
    }
    hash.update(part.subarray(0, bytesRead));
    size += bytesRead;
  }
}

async function setAttributes(ground: Ground, attributes: Attributes): Promise<void> {
  const { path, follow, mode } = attributes;
  if (!follow && mode !== undefined) throw fileFault("EOPNOTSUPP", "a symlink has no mode of its own");
  if (follow || namesFolder(path)) await withTarget(ground, path, (at) => apply(at, attributes, true));
  else await withEntry(ground, path, (at) => apply(at, attributes, false));
}

async function apply(path: string, { mode, uid, gid, mtimeMs }: Attributes, follow: boolean): Promise<void> {
  // Before the mode: changing the owner clears the set-uid bits. -1 leaves it, chown(2).
  if (uid !== undefined || gid !== undefined) await (follow ? chown : lchown)(path, uid ?? -1, gid ?? -1);
  if (mode !== undefined) await chmod(path, mode);
  if (mtimeMs !== undefined) {
    const time = utimeOf(mtimeMs / 1000);
    await (follow ? utimes : lutimes)(path, time, time);
  }
}

interface GlobOptions extends Means {
  ground: Ground;
  root: string;
  pattern: string;
  hidden: boolean;
  after?: string;
  cursor?: string;
  limit: number;
  signal: AbortSignal;
}

/** By a cursor a page may have no path, where nothing was found in its time. */
async function glob(asked: GlobOptions): Promise<GlobAnswer> {
  const { pattern, limit, cursor, lookMs } = asked;
  const after = cursor ?? asked.after;
  const matcher = new Bun.Glob(pattern);
  const until = performance.now() + lookMs;
  const paths: string[] = [];
  let room = MAX_ANSWER_CHARACTERS;
  let seen = after ?? "";
  for await (const { path } of walk({ ...asked, after, enters: scopeOf(pattern) })) {
    if (path === "") continue;
    if (matcher.match(path)) {
      room -= path.length;
      if (paths.length === limit || room < 0) return { paths, more: true, cursor: seen };
      paths.push(path);
    }
    seen = path;
    if (performance.now() >= until && (cursor !== undefined || paths.length > 0))
      return { paths, more: true, cursor: seen };
  }
  return { paths, more: false };
}

interface SearchOptions extends Means {
  ground: Ground;
  path: string;
  root: string;
  text: string;
  ignoreCase: boolean;
  files?: string;
  hidden: boolean;
  limit: number;
  signal: AbortSignal;
}

async function search(options: SearchOptions): Promise<SearchAnswer> {
  const { root, limit, files, lookMs, signal } = options;
  const matcher = files === undefined ? undefined : new Bun.Glob(files);
  const enters = files === undefined ? undefined : scopeOf(files);
  const until = performance.now() + lookMs;
  const matches: Match[] = [];
  let room = MAX_ANSWER_CHARACTERS;
  for await (const { path, reach, type } of walk({ ...options, enters })) {
    if (performance.now() >= until) return { matches, more: true };
    const named = path === "";
    if ((type !== "file" && !named) || matcher?.match(path) === false) continue;
    const shown = named ? options.path : path;
    if (named) await refusePipes("search", root, shown);
    const tell = (line: number, text: string): boolean => {
      room -= text.length + path.length;
      if (matches.length === limit || room < 0) return false;
      matches.push({ path, line, text });
      return true;
    };
    const whole = await reach((full) => searchFile(full, shown, options, tell)).catch((thrown: unknown) => {
      // What may not be read, or is gone by now, is left out; but of the one file that was named it is told.
      if (named || signal.aborted) throw thrown;
      return true;
    });
    if (!whole) return { matches, more: true };
  }
  return { matches, more: false };
}
