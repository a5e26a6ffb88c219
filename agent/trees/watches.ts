// What changes below folders, remembered until it is asked for: within bounds of number and time.
import {
  BusyError,
  errnoOf,
  InvalidRequestError,
  NotFoundError,
  type WatchAnswer,
} from "../../broker/contract/index.ts";
import { unlessAborted } from "../../broker/link/unless-aborted.ts";
import { DRAFT_PREFIX } from "../files/draft.ts";
import type { Ground } from "../files/ground.ts";
import type { Engine } from "../native/engine.ts";
import { Entries } from "./entries.ts";
import { Inotify } from "./inotify.ts";
import { type Seen, Watched, type WatchedOptions } from "./watched.ts";

/** Watches at once. */
const MAX_WATCHES = 32;
/** Changes of one watch that are remembered, each path once, and the characters of their paths: one answer has them all, and
 * is one message. */
const MAX_CHANGES = 2000;
const MAX_PATH_CHARACTERS = 384 * 1024;
/** An editor's save is several changes; they are told together. */
const SETTLE_MS = 20;

type Change = WatchAnswer["changes"][number];

interface WatchOptions extends WatchedOptions {
  idleMs: number;
  onEnd(): void;
}

class Watch implements Seen {
  /** What is watched, by the ground. */
  readonly name: string;
  readonly recursive: boolean;
  readonly #watched: Watched;
  /** Behind the answer that was last given, in the order of their last change. */
  #fresh = new Set<string>();
  #freshCharacters = 0;
  /** Of these: folders that are gone, whatever is there now. */
  #gone = new Set<string>();
  /** In that answer: told again where it was lost. */
  #told: Promise<Change[]> = Promise.resolve([]);
  #overflow = false;
  #toldOverflow = false;
  /** How often was answered; the number in the cursor. */
  #turn = 0;
  #begun: Promise<void> | undefined;
  #isBegun = false;
  /** Who wait for that. */
  #waiting = 0;
  #ended = false;
  #failure: { error: unknown } | undefined;
  /** Each of those who wait for a change. */
  readonly #wakes = new Set<() => void>();
  #looked: Promise<void> = Promise.resolve();
  #idle: ReturnType<typeof setTimeout> | undefined;
  readonly #idleMs: number;
  /** It is to be closed. */
  readonly #onEnd: () => void;

  constructor({ idleMs, onEnd, ...watched }: WatchOptions) {
    this.name = watched.ground.name(watched.path);
    this.recursive = watched.recursive;
    this.#idleMs = idleMs;
    this.#onEnd = onEnd;
    this.#watched = new Watched(watched, this);
  }

  path(path: string): void {
    // What the daemon itself is writing is not there yet.
    if (path.slice(path.lastIndexOf("/") + 1).startsWith(DRAFT_PREFIX)) return;
    if (this.#fresh.delete(path) || this.#hasRoom(path)) this.#fresh.add(path);
    else this.#overflow = true;
    this.#wake();
  }

  /** Takes it, where it is not yet among them. */
  #hasRoom(path: string): boolean {
    const characters = this.#freshCharacters + path.length;
    if (this.#fresh.size >= MAX_CHANGES || characters > MAX_PATH_CHARACTERS) return false;
    this.#freshCharacters = characters;
    return true;
  }

  gone(path: string): void {
    this.path(path);
    if (this.#fresh.has(path)) this.#gone.add(path);
  }

  overflow(): void {
    this.#overflow = true;
    this.#wake();
  }

  failed(error: unknown): void {
    this.#failure = { error };
    this.#wake();
  }

  #wake(): void {
    for (const wake of this.#wakes) wake();
  }

  #rest(): void {
    clearTimeout(this.#idle);
    if (!this.#ended && this.#wakes.size === 0) this.#idle = setTimeout(this.#onEnd, this.#idleMs);
  }

  /** Resolves when it watches. Whoever asks again shares the beginning, which ends with the last who waits for it. */
  async begin(id: string, signal: AbortSignal): Promise<WatchAnswer> {
    this.#waiting++;
    try {
      this.#begun ??= this.#watched.begin().then(() => {
        this.#isBegun = true;
        this.#rest();
      });
      await unlessAborted(this.#begun, signal, () => signal.reason);
    } finally {
      if (--this.#waiting === 0 && !this.#isBegun) this.#onEnd();
    }
    return { cursor: `${id}.0`, changes: [], overflow: false };
  }

  /** Throws NotFoundError for a turn that is neither this nor the one before, and where another is at the root, or none. */
  async next(id: string, turn: number, waitMs: number): Promise<WatchAnswer> {
    if (turn !== this.#turn) return await this.#again(id, turn);
    clearTimeout(this.#idle);
    if (this.#nothing && this.#failure === undefined) await this.#change(waitMs);
    this.#rest();
    if (this.#nothing) await this.#look();
    // Whoever asked the same beside this one was answered.
    if (turn !== this.#turn) return await this.#again(id, turn);
    if (this.#nothing) {
      if (this.#failure !== undefined) return this.#end(this.#failure);
      return { cursor: `${id}.${turn}`, changes: [], overflow: false };
    }
    this.#told = this.#tell([...this.#fresh], this.#gone);
    this.#toldOverflow = this.#overflow;
    this.#fresh = new Set();
    this.#freshCharacters = 0;
    this.#gone = new Set();
    this.#overflow = false;
    this.#turn = turn + 1;
    return await this.#answer(id);
  }

  async #again(id: string, turn: number): Promise<WatchAnswer> {
    if (turn === this.#turn - 1) return await this.#answer(id);
    throw new NotFoundError("that part of the watch was answered", { field: "cursor" });
  }

  async #tell(paths: readonly string[], gone: ReadonlySet<string>): Promise<Change[]> {
    const changes = await changesOf(paths, gone, (path) => this.#watched.stat(path));
    // Behind that: it is of what is at the root's path. Of a file it is true whichever is there.
    if (this.#watched.isFile) return changes;
    await this.#look();
    if (this.#failure?.error instanceof NotFoundError) return this.#end(this.#failure);
    return changes;
  }

  /** Whether the root is still what is watched; where not, that is the failure. */
  #look(): Promise<void> {
    // One by one: where the file system does not answer, one thread waits for it.
    this.#looked = this.#looked.then(async () => {
      if (this.#ended || this.#failure !== undefined) return;
      await this.#watched.expectRoot().catch((error: unknown) => {
        if (!this.#ended) this.#failure ??= { error };
      });
    });
    return this.#looked;
  }

  #end({ error }: { error: unknown }): never {
    this.#onEnd();
    throw error;
  }

  get #nothing(): boolean {
    return this.#fresh.size === 0 && !this.#overflow;
  }

  async #answer(id: string): Promise<WatchAnswer> {
    const answer = { cursor: `${id}.${this.#turn}`, overflow: this.#toldOverflow };
    return { ...answer, changes: await this.#told };
  }

  async #change(waitMs: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<boolean>();
    const wake = (): void => resolve(true);
    const timer = setTimeout(() => resolve(false), waitMs);
    this.#wakes.add(wake);
    const changed = await promise;
    this.#wakes.delete(wake);
    clearTimeout(timer);
    if (changed) await Bun.sleep(Math.min(SETTLE_MS, waitMs));
  }

  /** Events were lost. */
  lost(): void {
    this.#watched.overflow();
  }

  close(): void {
    this.#ended = true;
    clearTimeout(this.#idle);
    this.#watched.end();
    this.#wake();
  }
}

async function changesOf(
  paths: readonly string[],
  gone: ReadonlySet<string>,
  stat: (path: string) => Promise<unknown>,
): Promise<Change[]> {
  // Before all else, which is true of what is there now, perhaps below them.
  const changes: Change[] = [...gone].map((path) => ({ path, kind: "removed" }));
  // One by one: where the file system does not answer, one thread waits for it.
  for (const path of paths) {
    const there = await stat(path).then(
      () => true,
      (error: unknown) => errnoOf(error) !== "ENOENT",
    );
    if (there) changes.push({ path, kind: "changed" });
    else if (!gone.has(path)) changes.push({ path, kind: "removed" });
  }
  return changes;
}

export interface Begin {
  ground: Ground;
  path: string;
  recursive: boolean;
  /** Under the same one it begins once. */
  id: string;
  signal: AbortSignal;
}

export class Watches {
  readonly #engine: Engine;
  readonly #idleMs: number;
  readonly #watches = new Map<string, Watch>();
  /** While there is a watch. */
  #means: { inotify: Inotify; entries: Entries } | undefined;

  /** One that nobody asks for `idleMs` ends. */
  constructor(engine: Engine, idleMs: number) {
    this.#engine = engine;
    this.#idleMs = idleMs;
  }

  /** Resolves when the folder or file at `path` is watched. Throws BusyError, FileError, the errnos of files, and what the
   * signal says. */
  async begin({ ground, path, recursive, id, signal }: Begin): Promise<WatchAnswer> {
    const before = this.#watches.get(id);
    const isOther = before?.name !== ground.name(path) || before.recursive !== recursive;
    if (before !== undefined && isOther)
      throw new InvalidRequestError("transfer: another watch has it", { field: "transfer" });
    const watch = before ?? this.#make({ ground, path, recursive }, id);
    return await watch.begin(id, signal);
  }

  #make(asked: Pick<WatchedOptions, "ground" | "path" | "recursive">, id: string): Watch {
    if (this.#watches.size >= MAX_WATCHES) throw new BusyError(`${MAX_WATCHES} watches are open already`);
    this.#means ??= { inotify: this.#listen(), entries: new Entries(this.#engine.folders) };
    const onEnd = (): void => this.#end(id, made);
    const made = new Watch({ ...this.#means, ...asked, idleMs: this.#idleMs, onEnd });
    this.#watches.set(id, made);
    return made;
  }

  #listen(): Inotify {
    return new Inotify(this.#engine, () => {
      for (const watch of this.#watches.values()) watch.lost();
    });
  }

  /** Throws NotFoundError for a cursor of no open watch of that folder. */
  async next(ground: Ground, path: string, cursor: string, waitMs: number): Promise<WatchAnswer> {
    const dot = cursor.lastIndexOf(".");
    const id = cursor.slice(0, Math.max(0, dot));
    const found = this.#watches.get(id);
    if (found === undefined || found.name !== ground.name(path))
      throw new NotFoundError("no such watch is open; begin another and look for yourself", {
        field: "cursor",
      });
    return await found.next(id, Number(cursor.slice(dot + 1)), waitMs);
  }

  #end(id: string, watch: Watch): void {
    if (this.#watches.get(id) !== watch) return;
    this.#watches.delete(id);
    watch.close();
    if (this.#watches.size > 0) return;
    this.#means?.inotify.close();
    this.#means = undefined;
  }

  /** false where none is open under that name. */
  end(id: string): boolean {
    const watch = this.#watches.get(id);
    if (watch !== undefined) this.#end(id, watch);
    return watch !== undefined;
  }

  close(): void {
    for (const [id, watch] of [...this.#watches]) this.#end(id, watch);
  }
}
