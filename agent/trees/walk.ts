// Goes through a folder's tree in a fixed order: bounded, one folder at a time, so that other requests come between.
import { lstat, stat } from "node:fs/promises";
import { errnoOf } from "../../broker/contract/index.ts";
import { Direct } from "../files/direct.ts";
import { DT_DIR, DT_REG, DT_UNKNOWN } from "../files/dirents.ts";
import type { Below, Ground } from "../files/ground.ts";
import type { Listing, Listings } from "../files/listings.ts";
import { behind } from "../files/window.ts";
import type { Folders } from "../native/folders.ts";

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
  listings: Listings;
  /** The engine's. */
  folders: Folders | undefined;
  signal: AbortSignal;
}

/** Deeper ones are left out; no program makes such, and a stack is finite. */
const MAX_DEPTH = 256;
/** Others have theirs after so many names, where it is time. */
const NAMES_A_TURN = 1024;
const TYPES = new Map<number, Found["type"]>([
  [DT_REG, "file"],
  [DT_DIR, "dir"],
]);

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
    yield* walkFolder({ ...options, below, device: stats.dev, direct: new Direct() }, "", after, 0);
  } finally {
    await below.close();
  }
}

interface FolderOptions extends WalkOptions {
  below: Below;
  /** Of the root. */
  device: number;
  direct: Direct;
}

async function* walkFolder(
  options: FolderOptions,
  path: string,
  after: readonly string[],
  depth: number,
): AsyncGenerator<Found, void, void> {
  const [first, ...rest] = after;
  for await (const { window, first: begin } of listingsOf(options, path, first))
    for (let at = begin; at < window.length; at++) {
      if (at % NAMES_A_TURN === 0) await options.direct.turn();
      options.signal.throwIfAborted();
      const name = window.name(at);
      if (!options.hidden && name.startsWith(".")) continue;
      const found = await foundOf(options.below, path === "" ? name : `${path}/${name}`, window.kind(at));
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

async function foundOf(below: Below, path: string, kind: number): Promise<Found> {
  const type = kind === DT_UNKNOWN ? await typeAt(below, path) : (TYPES.get(kind) ?? "other");
  return { path, reach: (act) => below.reach(path, act), type };
}

/** Where the file system does not tell it with the name. */
async function typeAt(below: Below, path: string): Promise<Found["type"]> {
  const stats = await below.stat(path).catch(() => undefined);
  return stats?.isFile() ? "file" : stats?.isDirectory() ? "dir" : "other";
}

/** The folder's names from that one on, in pieces; the one in which the walk ends is kept for the next page. */
async function* listingsOf(
  options: FolderOptions,
  path: string,
  from: string | undefined,
): AsyncGenerator<Listing, void, void> {
  const { listings } = options;
  for (let begin = from; ; ) {
    const listing = await listed(options, path, begin);
    if (listing === undefined) return;
    const { window } = listing;
    let isThrough = false;
    try {
      yield listing;
      isThrough = true;
    } finally {
      if (isThrough) listings.drop(listing);
      else listings.keep(listing);
    }
    if (window.isLast) return;
    begin = behind(window.name(window.length - 1));
  }
}

/** Undefined where the folder may not be read, or is gone; of the root that is thrown. */
async function listed(
  { below, listings, direct, folders, signal }: FolderOptions,
  path: string,
  from: string | undefined,
): Promise<Listing | undefined> {
  const follow = path === "" || below.isPinned;
  try {
    return await below.reach(path, (full) =>
      listings.read({ path: full, follow, from, many: 1, direct, folders, signal }),
    );
  } catch (thrown) {
    if (path === "" || signal.aborted) throw thrown;
    return undefined;
  }
}
