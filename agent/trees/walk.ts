// Goes through a folder's tree in a fixed order: bounded, one folder at a time, so that other requests come between.
import type { Dirent } from "node:fs";
import { lstat, readdir, stat } from "node:fs/promises";
import { errnoOf } from "../../broker/contract/index.ts";
import type { Below, Ground } from "../files/ground.ts";

export interface Found {
  /** Below the root, with slashes; empty for a root that is no folder. */
  path: string;
  /** `act` with a path by which the kernel finds it. */
  reach: <T>(act: (full: string) => Promise<T>) => Promise<T>;
  type: "file" | "dir" | "other";
}

export interface WalkOptions {
  ground: Ground;
  /** What the ground gave for it. */
  root: string;
  /** Also names that begin with a dot. */
  hidden: boolean;
  /** A path that was found before: go on behind it. */
  after?: string | undefined;
  /** Whether to look into a folder of this name, so many folders below the root (from 0); default: all. */
  enters?: ((name: string, depth: number) => boolean) | undefined;
  signal: AbortSignal;
}

/** Deeper ones are left out; no program makes such, and a stack is finite. */
const MAX_DEPTH = 256;

/** Entries below the root, each folder before what is in it, names by UTF-16 code unit. Symlinks below are told as `other`
 * and not followed, and folders of other file systems not entered (/proc below / would have no end). What vanishes or may
 * not be read meanwhile is left out; of the root itself the error is thrown. */
export async function* walk(options: WalkOptions): AsyncGenerator<Found, void, void> {
  const { root } = options;
  const stats = await lstat(root.endsWith("/") ? root : `${root}/.`).catch((thrown: unknown) => {
    if (errnoOf(thrown) !== "ENOTDIR") throw thrown;
  });
  if (stats === undefined) {
    yield { path: "", reach: (act) => act(root), type: (await stat(root)).isFile() ? "file" : "other" };
    return;
  }
  const after = options.after === undefined ? [] : options.after.split("/");
  const below = await options.ground.below(root);
  try {
    yield* walkFolder({ ...options, below, device: stats.dev }, "", after, 0);
  } finally {
    await below.close();
  }
}

interface FolderOptions extends WalkOptions {
  below: Below;
  /** Of the root. */
  device: number;
}

async function* walkFolder(
  options: FolderOptions,
  path: string,
  after: readonly string[],
  depth: number,
): AsyncGenerator<Found, void, void> {
  for (const entry of await entriesOf(options.below, path)) {
    options.signal.throwIfAborted();
    const { name } = entry;
    if (!options.hidden && name.startsWith(".")) continue;
    const [first, ...rest] = after;
    if (first !== undefined && name < first) continue;
    const found = foundOf(options.below, path, entry);
    // The page before ended at this one, or below it.
    const passed = name === first;
    if (!passed) yield found;
    if (found.type !== "dir" || depth >= MAX_DEPTH || options.enters?.(name, depth) === false) continue;
    const same = await options.below.stat(found.path).then(
      (stats) => stats.isDirectory() && stats.dev === options.device,
      () => false,
    );
    if (same) yield* walkFolder(options, found.path, passed ? rest : [], depth + 1);
  }
}

function foundOf(below: Below, folder: string, entry: Dirent): Found {
  const path = folder === "" ? entry.name : `${folder}/${entry.name}`;
  const type = entry.isFile() ? "file" : entry.isDirectory() ? "dir" : "other";
  return { path, reach: (act) => below.reach(path, act), type };
}

async function entriesOf(below: Below, path: string): Promise<Dirent[]> {
  try {
    const entries = await below.reach(path, (full) => readdir(full, { withFileTypes: true }));
    return entries.sort((a, b) => (a.name < b.name ? -1 : 1));
  } catch (thrown) {
    if (path === "") throw thrown;
    return [];
  }
}
