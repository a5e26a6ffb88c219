// Trees of executor.ts on the real file system: hash, attributes, glob, search and watch, bounded in time and size.
import { createHash } from "node:crypto";
import { chmod, chown, lchown, lutimes, utimes } from "node:fs/promises";
import {
  type GlobAnswer,
  type HashAnswer,
  newUuidV7,
  type SearchAnswer,
} from "../../broker/contract/index.ts";
import type { Attributes, Trees } from "../../broker/endpoint/executor.ts";
import { fileFault, withPath } from "../files/error.ts";
import { openFile, refusePipes } from "../files/open.ts";
import type { Engine } from "../native/engine.ts";
import { type Match, searchFile } from "./search.ts";
import { walk } from "./walk.ts";
import { Watches } from "./watches.ts";

const PART_BYTES = 1024 * 1024;
/** A search or glob that found less by then answers what it has, and that there is more. */
const MAX_TIME_MS = 20_000;
/** Of an answer's texts: with what encoding adds it stays far below the 1 MiB of a message. */
const MAX_ANSWER_CHARACTERS = 256 * 1024;

export interface TreesOptions {
  /** Where relative paths begin. */
  cwd: string;
  engine: Engine;
  /** A watch that nobody asks for this long ends. */
  watchIdleMs?: number;
}

export function createTrees({ cwd, engine, watchIdleMs = 60_000 }: TreesOptions): Trees {
  const full = (path: string): string => (path.startsWith("/") ? path : `${cwd}/${path}`);
  const watches = new Watches(engine, watchIdleMs);
  return {
    hash: (path, signal) => withPath("hash", path, () => hashFile(full(path), signal)),
    setAttributes: (attributes) =>
      withPath("set attributes of", attributes.path, () => apply(full(attributes.path), attributes)),
    glob: (request) =>
      withPath("glob in", request.path, () => glob({ ...request, root: full(request.path) })),
    search: (request) =>
      withPath("search in", request.path, () => search({ ...request, root: full(request.path) })),
    watch: ({ path, recursive, transfer = newUuidV7(), signal }) =>
      withPath("watch", path, () => watches.begin({ root: full(path), recursive, id: transfer, signal })),
    changes: ({ path, cursor, waitMs }) =>
      withPath("watch", path, () => watches.next(full(path), cursor, waitMs)),
    endWatch: async (transfer) => watches.end(transfer),
    close: () => watches.close(),
  };
}

async function hashFile(path: string, signal: AbortSignal): Promise<HashAnswer> {
  await refusePipes("hash", path);
  await using file = await openFile("hash", path);
  const hash = createHash("sha256");
  const part = Buffer.allocUnsafe(PART_BYTES);
  for (let size = 0; ; ) {
    signal.throwIfAborted();
    const { bytesRead } = await file.read(part, 0, PART_BYTES, null);
    if (bytesRead === 0) return { sha256: hash.digest("hex"), size };
    hash.update(part.subarray(0, bytesRead));
    size += bytesRead;
  }
}

async function apply(path: string, { mode, uid, gid, mtimeMs, follow }: Attributes): Promise<void> {
  if (!follow && mode !== undefined) throw fileFault("EOPNOTSUPP", "a symlink has no mode of its own");
  // Before the mode: changing the owner clears the set-uid bits. -1 leaves it, chown(2).
  if (uid !== undefined || gid !== undefined) await (follow ? chown : lchown)(path, uid ?? -1, gid ?? -1);
  if (mode !== undefined) await chmod(path, mode);
  if (mtimeMs !== undefined) await (follow ? utimes : lutimes)(path, mtimeMs / 1000, mtimeMs / 1000);
}

interface GlobOptions {
  root: string;
  pattern: string;
  hidden: boolean;
  after?: string;
  limit: number;
  signal: AbortSignal;
}

async function glob({ root, pattern, hidden, after, limit, signal }: GlobOptions): Promise<GlobAnswer> {
  const matcher = new Bun.Glob(pattern);
  const until = performance.now() + MAX_TIME_MS;
  const paths: string[] = [];
  let room = MAX_ANSWER_CHARACTERS;
  const options = { root, hidden, signal, ...(after === undefined ? {} : { after }) };
  for await (const { path } of walk(options)) {
    if (path === "" || !matcher.match(path)) continue;
    room -= path.length;
    if (paths.length === limit || room < 0 || performance.now() > until) return { paths, more: true };
    paths.push(path);
  }
  return { paths, more: false };
}

interface SearchOptions {
  root: string;
  text: string;
  ignoreCase: boolean;
  files?: string;
  hidden: boolean;
  limit: number;
  signal: AbortSignal;
}

async function search(options: SearchOptions): Promise<SearchAnswer> {
  const { root, hidden, limit, files, signal } = options;
  const matcher = files === undefined ? undefined : new Bun.Glob(files);
  const until = performance.now() + MAX_TIME_MS;
  const matches: Match[] = [];
  let room = MAX_ANSWER_CHARACTERS;
  for await (const { path, full, type } of walk({ root, hidden, signal })) {
    const named = path === "";
    if ((type !== "file" && !named) || matcher?.match(path) === false) continue;
    if (named) await refusePipes("search", full);
    const whole = await searchFile(full, options, (line, text) => {
      room -= text.length + path.length;
      if (matches.length === limit || room < 0) return false;
      matches.push({ path, line, text });
      return true;
    }).catch((thrown: unknown) => {
      // What may not be read, or is gone by now, is left out; but of the one file that was named it is told.
      if (named || signal.aborted) throw thrown;
      return true;
    });
    if (!whole || performance.now() > until) return { matches, more: true };
  }
  return { matches, more: false };
}
