// What changes below folders, remembered until it is asked for: within bounds of number and time.
import { type FSWatcher, watch } from "node:fs";
import { lstat } from "node:fs/promises";
import {
  BusyError,
  errnoOf,
  NotFoundError,
  newUuidV7,
  type WatchAnswer,
} from "../../broker/contract/index.ts";
import { DRAFT_PREFIX } from "../files/draft.ts";

/** Watches at once; each costs the kernel an inotify watch for each folder. */
const MAX_WATCHES = 32;
/** Changes of one watch that are remembered, each path once. */
const MAX_CHANGES = 2000;
/** One that nobody asks for this long ends. */
const IDLE_MS = 60_000;
/** An editor's save is several changes; they are told together. */
const SETTLE_MS = 20;

type Change = WatchAnswer["changes"][number];

class Watch {
  readonly root: string;
  readonly #watcher: FSWatcher;
  /** Behind the answer that was last given, in the order of their last change. */
  #fresh = new Set<string>();
  /** In that answer: told again where it was lost. */
  #told: Promise<Change[]> = Promise.resolve([]);
  #overflow = false;
  #toldOverflow = false;
  /** How often was answered; the number in the cursor. */
  #turn = 0;
  #wake: (() => void) | undefined;
  #idle: ReturnType<typeof setTimeout> | undefined;
  readonly #onIdle: () => void;

  constructor(root: string, recursive: boolean, onIdle: () => void) {
    this.root = root;
    this.#onIdle = onIdle;
    this.#watcher = watch(root, { recursive, persistent: false }, (_, name) => this.#seen(name));
    // A watch that fails (the folder is gone) tells no more; whoever asks finds the folder gone.
    this.#watcher.on("error", () => this.#seen(null));
    this.#rest();
  }

  #seen(name: string | null): void {
    // What the daemon itself is writing is not there yet.
    if (name?.slice(name.lastIndexOf("/") + 1).startsWith(DRAFT_PREFIX)) return;
    if (name === null || this.#fresh.size >= MAX_CHANGES) this.#overflow = true;
    else {
      this.#fresh.delete(name);
      this.#fresh.add(name);
    }
    this.#wake?.();
  }

  #rest(): void {
    clearTimeout(this.#idle);
    this.#idle = setTimeout(this.#onIdle, IDLE_MS);
  }

  begin(id: string): WatchAnswer {
    return { cursor: `${id}.${this.#turn}`, changes: [], overflow: false };
  }

  /** Throws NotFoundError for a turn that is neither this nor the one before. */
  async next(id: string, turn: number, waitMs: number): Promise<WatchAnswer> {
    if (turn === this.#turn - 1) return await this.#answer(id);
    if (turn !== this.#turn)
      throw new NotFoundError("that part of the watch was answered", { field: "cursor" });
    clearTimeout(this.#idle);
    try {
      if (this.#fresh.size === 0 && !this.#overflow) await this.#change(waitMs);
    } finally {
      this.#rest();
    }
    if (this.#fresh.size === 0 && !this.#overflow)
      return { cursor: `${id}.${turn}`, changes: [], overflow: false };
    this.#told = changesOf(this.root, [...this.#fresh]);
    this.#toldOverflow = this.#overflow;
    this.#fresh = new Set();
    this.#overflow = false;
    this.#turn = turn + 1;
    return await this.#answer(id);
  }

  async #answer(id: string): Promise<WatchAnswer> {
    const answer = { cursor: `${id}.${this.#turn}`, overflow: this.#toldOverflow };
    return { ...answer, changes: await this.#told };
  }

  async #change(waitMs: number): Promise<void> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const changed = await new Promise<boolean>((resolve) => {
      this.#wake = () => resolve(true);
      timer = setTimeout(() => resolve(false), waitMs);
    });
    clearTimeout(timer);
    this.#wake = undefined;
    if (changed) await Bun.sleep(Math.min(SETTLE_MS, waitMs));
  }

  close(): void {
    clearTimeout(this.#idle);
    this.#watcher.close();
    this.#wake?.();
  }
}

async function changesOf(root: string, paths: readonly string[]): Promise<Change[]> {
  const changes: Change[] = [];
  // One by one: where the file system does not answer, one thread waits for it.
  for (const path of paths) {
    const there = await lstat(`${root}/${path}`).then(
      () => true,
      (error: unknown) => errnoOf(error) !== "ENOENT",
    );
    changes.push({ path, kind: there ? "changed" : "removed" });
  }
  return changes;
}

export class Watches {
  readonly #watches = new Map<string, Watch>();

  /** Begins to watch the folder or file at `root`. Throws BusyError and the errors of inotify(7). */
  begin(root: string, recursive: boolean): WatchAnswer {
    if (this.#watches.size >= MAX_WATCHES) throw new BusyError(`${MAX_WATCHES} watches are open already`);
    const id = newUuidV7();
    const made = new Watch(root, recursive, () => this.#end(id));
    this.#watches.set(id, made);
    return made.begin(id);
  }

  /** Throws NotFoundError for a cursor of no open watch of that folder. */
  async next(root: string, cursor: string, waitMs: number): Promise<WatchAnswer> {
    const dot = cursor.lastIndexOf(".");
    const id = cursor.slice(0, Math.max(0, dot));
    const found = this.#watches.get(id);
    if (found === undefined || found.root !== root)
      throw new NotFoundError("no such watch is open; begin another and look for yourself", {
        field: "cursor",
      });
    return await found.next(id, Number(cursor.slice(dot + 1)), waitMs);
  }

  #end(id: string): void {
    this.#watches.get(id)?.close();
    this.#watches.delete(id);
  }

  close(): void {
    for (const id of [...this.#watches.keys()]) this.#end(id);
  }
}
