// What stands in folders, for answers in pages: each folder is read once for many pages, not for each anew, and of one of any
// size a window is held. Where that is gone, or the folder has changed since, it is read again.
import { type BigIntStats, closeSync, fstatSync } from "node:fs";
import { readdir, stat } from "node:fs/promises";
import type { Folders } from "../native/folders.ts";
import type { Direct } from "./direct.ts";
import { DT_DIR, DT_REG, DT_UNKNOWN, eachEntry, PIECE_BYTES } from "./dirents.ts";
import { EAGAIN, errno } from "./error.ts";
import { Choice, REPLACED, WINDOW_BYTES, type Window } from "./window.ts";

/** Of all windows that wait for their next page. */
const KEPT_BYTES = 2 * 1024 * 1024;
/** So long they wait, ms. */
const KEPT_MS = 10_000;
/** A change so soon after another may have the same time, ms: ten milliseconds are the kernel's longest tick; … */
const TICK_MS = 20;
/** … and file systems that know no fractions of a second (ext3, vfat) count by two seconds at most. */
const COARSE_TICK_MS = 2_500;
/** Of getdents64(2), for what is neither a file nor a folder; there are several. */
const DT_OTHER = 10;

export interface Listing {
  window: Window;
  /** Of the first name in it that was asked for. */
  first: number;
  /** What the folder was when it was read; empty where another change might not be told from that. */
  stamp: string;
}

export interface Asked {
  path: string;
  /** Where the path is a symlink, what it leads to is read. */
  follow: boolean;
  /** Names that are not before this one; undefined: all, as they are now. */
  from: string | undefined;
  /** So many of them, or all, if they fit. */
  many: number;
  direct: Direct;
  /** The engine's. Without it all is read by threads, at once, and takes as much memory. */
  folders: Folders | undefined;
  signal: AbortSignal;
}

interface Kept {
  window: Window;
  stamp: string;
  usedAt: number;
}

export class Listings {
  /** How often folders were read. */
  reads = 0;
  readonly #kept = new Set<Kept>();
  readonly #keptBytes: number;
  readonly #keptMs: number;
  readonly #windowBytes: number;
  readonly #piece = Buffer.allocUnsafeSlow(PIECE_BYTES);
  #bytes = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** Of those who read a folder of more than one piece: what they choose from takes memory. */
  #turn: Promise<void> = Promise.resolve();

  constructor({ keptBytes = KEPT_BYTES, keptMs = KEPT_MS, windowBytes = WINDOW_BYTES } = {}) {
    this.#windowBytes = windowBytes;
    this.#keptBytes = keptBytes;
    this.#keptMs = keptMs;
  }

  /** Of all that is kept. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Throws errnos, and the signal's reason. */
  async read(asked: Asked): Promise<Listing> {
    const { path, follow, direct, folders } = asked;
    const fd =
      folders !== undefined && direct.allowed()
        ? direct.run(() => folders.open(path, follow, new Uint32Array(2)))
        : EAGAIN;
    if (folders === undefined || fd === EAGAIN) return await this.#readByThread(asked);
    if (fd < 0) throw errno(fd);
    return await this.#readPieces(asked, folders, fd);
  }

  /** For its next page. */
  keep(listing: Listing): void {
    const { stamp, window } = listing;
    if (stamp === "") return;
    this.drop(listing);
    this.#kept.add({ stamp, window, usedAt: performance.now() });
    this.#bytes += window.bytes;
    while (this.#bytes > this.#keptBytes) this.#halve();
    this.#timer ??= setTimeout(() => this.#expire(), this.#keptMs);
  }

  /** Nobody needs it any more. */
  drop({ stamp, window }: Listing): void {
    this.#forget((kept) => kept.stamp === stamp && kept.window.from === window.from);
  }

  #find(stamp: string, { from, many }: Asked): Listing | undefined {
    if (from === undefined) return undefined;
    for (const kept of this.#kept) {
      const first = kept.stamp === stamp ? kept.window.find(from, many) : undefined;
      if (first === undefined) continue;
      kept.usedAt = performance.now();
      return { stamp, window: kept.window, first };
    }
    // What comes before is passed.
    this.#forget((kept) => kept.stamp === stamp && (kept.window.from ?? "") <= from);
    return undefined;
  }

  #forget(which: (kept: Kept) => boolean): void {
    for (const kept of this.#kept)
      if (which(kept)) {
        this.#kept.delete(kept);
        this.#bytes -= kept.window.bytes;
      }
  }

  /** The largest loses what is asked for last. */
  #halve(): void {
    let largest: Kept | undefined;
    for (const kept of this.#kept)
      if (largest === undefined || kept.window.bytes > largest.window.bytes) largest = kept;
    if (largest === undefined) return;
    this.#bytes -= largest.window.bytes;
    largest.window = largest.window.half();
    this.#bytes += largest.window.bytes;
    if (largest.window.length === 0) this.#kept.delete(largest);
  }

  #expire(): void {
    this.#timer = undefined;
    const before = performance.now() - this.#keptMs;
    this.#forget(({ usedAt }) => usedAt <= before);
    if (this.#kept.size === 0) return;
    const oldest = Math.min(...[...this.#kept].map(({ usedAt }) => usedAt));
    this.#timer = setTimeout(() => this.#expire(), Math.max(1, oldest - before));
  }

  /** What is kept of a folder that is as it was, or else what `choose` finds there. */
  async #listing(
    asked: Asked,
    stats: BigIntStats,
    choose: (choice: Choice) => Promise<void>,
  ): Promise<Listing> {
    const { stamp, isSettled } = stateOf(stats);
    const found = this.#find(stamp, asked);
    if (found !== undefined) return found;
    this.reads++;
    const choice = new Choice(asked.from, this.#windowBytes);
    await choose(choice);
    return { window: choice.window(), first: 0, stamp: isSettled ? stamp : "" };
  }

  async #readPieces(asked: Asked, folders: Folders, fd: number): Promise<Listing> {
    let isOpen = true;
    const next = (): number => {
      const length = asked.direct.run(() => folders.entries(fd, this.#piece));
      isOpen = length > 0;
      if (length < 0) throw errno(length);
      return length;
    };
    try {
      const stats = fstatSync(fd, { bigint: true });
      return await this.#listing(asked, stats, (choice) => this.#addPieces(choice, asked, next));
    } finally {
      if (isOpen) closeSync(fd);
    }
  }

  /** `next` reads a piece, and answers how many bytes it has; 0 after the last. */
  async #addPieces(choice: Choice, { direct, signal }: Asked, next: () => number): Promise<void> {
    const piece = this.#piece;
    let done: (() => void) | undefined;
    try {
      for (let length = next(); length > 0; length = next()) {
        eachEntry(piece, length, (kind, begin, end) =>
          choice.add(piece.toString("utf8", begin, end), () => piece.subarray(begin, end), kind),
        );
        // The first piece is most often all that there is; what follows it is used up before others have their turn, too.
        if (length > PIECE_BYTES / 2) done ??= await this.#ownTurn();
        await direct.turn();
        signal.throwIfAborted();
      }
    } finally {
      done?.();
    }
  }

  /** Resolves to what ends it. */
  async #ownTurn(): Promise<() => void> {
    const before = this.#turn;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#turn = promise;
    await before;
    return resolve;
  }

  async #readByThread(asked: Asked): Promise<Listing> {
    const { path, signal } = asked;
    return await this.#listing(asked, await stat(path, { bigint: true }), async (choice) => {
      const isText = await addEntries(choice, path);
      signal.throwIfAborted();
      if (!isText) await addNames(choice, path);
    });
  }
}

/** One that is not settled may change without a change of its stamp. */
function stateOf({ dev, ino, mtimeNs, ctimeNs }: BigIntStats): { stamp: string; isSettled: boolean } {
  const lastNs = mtimeNs > ctimeNs ? mtimeNs : ctimeNs;
  const tickMs = lastNs % 1_000_000_000n === 0n ? COARSE_TICK_MS : TICK_MS;
  return {
    stamp: `${dev} ${ino} ${mtimeNs} ${ctimeNs}`,
    isSettled: Date.now() - Number(lastNs / 1_000_000n) > tickMs,
  };
}

/** False, and none is added, where some are not UTF-8, which an entry with its kind does not say. */
async function addEntries(choice: Choice, path: string): Promise<boolean> {
  const entries = await readdir(path, { withFileTypes: true });
  if (entries.some(({ name }) => name.includes(REPLACED))) return false;
  for (const entry of entries) {
    const kind = entry.isFile() ? DT_REG : entry.isDirectory() ? DT_DIR : DT_OTHER;
    choice.add(entry.name, () => Buffer.from(entry.name), kind);
  }
  return true;
}

async function addNames(choice: Choice, path: string): Promise<void> {
  for (const raw of await readdir(path, { encoding: "buffer" }))
    choice.add(raw.toString(), () => raw, DT_UNKNOWN);
}
