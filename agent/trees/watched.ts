// A folder and all below it, each folder with a watch of the kernel's: begun, and kept, in pieces, so that other requests
// come between. What is there decides, not what events say has happened: of a folder that came or went it is looked
// whether it is there, so that their order does not matter.
import type { Stats } from "node:fs";
import { realpath } from "node:fs/promises";
import { basename } from "node:path";
import { CanceledError, NotFoundError } from "../../broker/contract/index.ts";
import { errno } from "../files/error.ts";
import type { Ground } from "../files/ground.ts";
import type { Entries } from "./entries.ts";
import { Folder, type Tree } from "./folder.ts";
import { IN, type Inotify, isShort } from "./inotify.ts";
import { Mounted } from "./mounted.ts";
import { Reach } from "./reach.ts";

/** Without a breath. */
const SLICE_MS = 2;
/** Names of folders that are to be looked at; where there are more all is looked at. */
const MAX_LOOKS = 10_000;
const CAME_OR_WENT = IN.create | IN.delete | IN.movedFrom | IN.movedTo;
/** Of what is watched itself: perhaps another is there now. (A file that is still open elsewhere has lost a link only.) */
const PERHAPS_GONE = IN.attrib | IN.deleteSelf | IN.moveSelf | IN.unmount;

export interface Seen {
  /** A path below the root. */
  path(path: string): void;
  /** Of a folder below the root that is there no more, nor what was below it, of which only folders are known. Whether
   * another, or a file, is at that path is to be looked at; what another has is told behind this. */
  gone(path: string): void;
  /** More than is told of. */
  overflow(): void;
  /** It cannot go on, and has let go of all: a FileError, or NotFoundError where another is at the root, or none. */
  failed(error: unknown): void;
}

export interface WatchedOptions {
  inotify: Inotify;
  entries: Entries;
  ground: Ground;
  /** Of the root. */
  path: string;
  recursive: boolean;
}

export class Watched implements Tree {
  readonly #inotify: Inotify;
  readonly #entries: Entries;
  readonly #seen: Seen;
  readonly #path: string;
  readonly #reach: Reach;
  readonly #recursive: boolean;
  readonly #stop = new AbortController();
  #root: Folder | undefined;
  /** Its name, where the root is no folder. */
  #file: string | undefined;
  #real = "";
  #mounted = new Mounted("", []);
  #looks = new Map<Folder, Set<string>>();
  #lookCount = 0;
  #lookAtAll = false;
  #lookAtRoot = false;
  /** It keeps itself up to date; not yet in the beginning. */
  #begun = false;
  #looking = false;
  #breathedAt = 0;
  /** How often another folder was found than was known, or none any more. */
  #found = 0;

  constructor({ inotify, entries, ground, path, recursive }: WatchedOptions, seen: Seen) {
    this.#inotify = inotify;
    this.#entries = entries;
    this.#path = path;
    this.#reach = new Reach({ inotify, ground, path, signal: this.#stop.signal });
    this.#recursive = recursive;
    this.#seen = seen;
  }

  /** Resolves when all of it is watched. Throws FileError, errnos, and CanceledError where it was ended. */
  async begin(): Promise<void> {
    const { at, isFolder } = await this.#reach.open();
    this.#real = (await realpath(at)).replace(/^\/$/, "");
    this.#mounted = new Mounted(this.#real);
    const wd = await this.#reach.watch(at, 0, this.#mounted.mayWait);
    if (wd < 0) throw errno(wd);
    this.#root = this.#hold(new Folder(this, "", wd));
    if (!isFolder) this.#file = basename(this.#path);
    if (isFolder && this.#recursive) {
      await this.#visit(this.#root, { tell: false, all: true });
      await this.#lookOnce();
    }
    this.#begun = true;
    this.#go();
  }

  /** Ends it; what it holds is let go of in pieces, without being waited for. */
  end(): void {
    this.#stop.abort(new CanceledError("the watch was ended"));
    this.#looks.clear();
    if (this.#root !== undefined) void this.#let(this.#root);
    this.#reach.close();
  }

  event(folder: Folder, path: string, mask: number, name: string): void {
    if (this.#stop.signal.aborted) return;
    if (name !== "") {
      this.#seen.path(below(path, name));
      if (this.#recursive && (mask & IN.isFolder) !== 0 && (mask & CAME_OR_WENT) !== 0)
        this.#lookAt(folder, name);
      return;
    }
    if (this.#file !== undefined && (mask & IN.ignored) === 0) this.#seen.path(this.#file);
    if (folder === this.#root) {
      if ((mask & PERHAPS_GONE) === 0) return;
      this.#lookAtRoot = true;
      this.#go();
    } else if ((mask & IN.unmount) !== 0 && folder.parent instanceof Folder) {
      // Of whatever else becomes of a folder the one above tells.
      this.#seen.overflow();
      this.#lookAt(folder.parent, folder.name);
    }
  }

  /** Events were lost, perhaps of folders that came. */
  overflow(): void {
    if (this.#stop.signal.aborted) return;
    this.#seen.overflow();
    this.#lookAtAll = this.#recursive;
    this.#go();
  }

  #lookAt(folder: Folder, name: string): void {
    if (this.#lookAtAll) return;
    if (++this.#lookCount > MAX_LOOKS) {
      this.#looks.clear();
      this.overflow();
      return;
    }
    const names = this.#looks.get(folder);
    if (names === undefined) this.#looks.set(folder, new Set([name]));
    else names.add(name);
    this.#go();
  }

  #go(): void {
    if (!this.#begun || this.#looking) return;
    this.#looking = true;
    const look = async (): Promise<void> => {
      while (this.#looks.size > 0 || this.#lookAtAll || this.#lookAtRoot) {
        await this.#lookOnce();
        // Always: of what was looked at under another's path nothing is true.
        this.#lookAtRoot = false;
        await this.expectRoot();
      }
      this.#looking = false;
    };
    void look().catch((thrown: unknown) => {
      if (this.#stop.signal.aborted) return;
      this.end();
      this.#seen.failed(thrown);
    });
  }

  /** Throws NotFoundError where it is there no more; where a folder above was renamed, a link set to another or something
   * mounted there, no event says so. The kernel gives the same number for the same one only. */
  async expectRoot(): Promise<void> {
    this.#stop.signal.throwIfAborted();
    const wd = await this.#reach.watchRoot(this.#mounted.mayWait);
    this.#stop.signal.throwIfAborted();
    if (wd === this.#root?.wd) return;
    if (wd >= 0) this.#inotify.let(this.#hold(new Folder(undefined, "", wd)));
    throw new NotFoundError("what was watched was removed, moved or replaced; begin another", {
      field: "cursor",
    });
  }

  /** At what is to be looked at by now. */
  async #lookOnce(): Promise<void> {
    const looks = this.#looks;
    const all = this.#lookAtAll;
    this.#looks = new Map();
    this.#lookCount = 0;
    this.#lookAtAll = false;
    if (all && this.#root !== undefined) {
      this.#mounted = new Mounted(this.#real);
      const found = this.#found;
      await this.#visit(this.#root, { tell: false, all: true });
      // Of what they had, and have got, nothing was told, and whoever looked for himself may have done so before they were
      // watched.
      if (this.#begun && this.#found !== found) this.#seen.overflow();
      return;
    }
    for (const [folder, names] of looks) {
      for (const name of names) {
        const made = await this.#place(folder, name, true);
        if (made !== undefined) await this.#visit(made, { tell: true, all: false });
      }
    }
  }

  /** All folders below `top`: those that are new, or `all` of them. */
  async #visit(top: Folder, how: { tell: boolean; all: boolean }): Promise<void> {
    const stack = [{ folder: top, counting: 0 }];
    for (let at = stack.pop(); at !== undefined; at = stack.pop()) {
      const { folder } = at;
      const { names, counting } = await this.#folders(folder, how.tell, at.counting);
      for (const name of names) {
        const made = await this.#place(folder, name, how.tell);
        const next = how.all ? folder.children?.get(name) : made;
        if (next !== undefined) stack.push({ folder: next, counting });
      }
    }
  }

  /** Names of those in it, and of those that were, and what `Entries` is to be told of these. What vanishes or may not be
   * read meanwhile is left out; of the root the error is thrown. */
  async #folders(
    folder: Folder,
    tell: boolean,
    above: number,
  ): Promise<{ names: string[]; counting: number }> {
    const names: string[] = [];
    let counting = 0;
    const path = folder.path()?.path;
    if (path === undefined) return { names, counting };
    const isRoot = folder === this.#root;
    const read = (full: string, follow: boolean): Promise<number> =>
      this.#entries.read({
        path: full,
        follow,
        all: tell,
        counting: above,
        mayWait: isRoot ? this.#mounted.mayWait : this.#mounted.mayWaitAt(path),
        tell: (name, isFolder) => {
          if (tell) this.#seen.path(below(path, name));
          if (isFolder) names.push(name);
        },
        breathe: () => this.#breathe()?.then(() => this.#stop.signal.throwIfAborted()),
      });
    try {
      counting = (await this.#reach.below(path, read)) ?? 0;
    } catch (thrown) {
      if ((isRoot && !this.#begun) || isShort(thrown)) throw thrown;
    }
    this.#stop.signal.throwIfAborted();
    const { children } = folder;
    return { names: children === undefined ? names : [...new Set([...names, ...children.keys()])], counting };
  }

  /** Watches what is there by that name now; resolves to it where it is another than before. */
  async #place(parent: Folder, name: string, tell: boolean): Promise<Folder | undefined> {
    const breath = this.#breathe();
    if (breath !== undefined) await breath;
    this.#stop.signal.throwIfAborted();
    const above = parent.path();
    if (above === undefined) return undefined;
    const path = below(above.path, name);
    if (this.#mounted.isUntold(path)) return undefined;
    const wd = await this.#reach.watchBelow(path, this.#mounted.mayWaitAt(path));
    const before = parent.children?.get(name);
    if (before !== undefined && before.wd === wd) return undefined;
    const made = wd < 0 ? undefined : this.#hold(new Folder(parent, name, wd));
    if (made === undefined) parent.children?.delete(name);
    else {
      parent.children ??= new Map();
      parent.children.set(name, made);
    }
    if (made !== undefined || before !== undefined) this.#found++;
    if (before !== undefined) {
      before.parent = undefined;
      // Before anything is told of the other.
      if (tell) this.#seen.gone(path);
      await this.#let(before);
    }
    return made;
  }

  /** Throws where the end came while it was made. */
  #hold(folder: Folder): Folder {
    this.#inotify.hold(folder);
    if (this.#stop.signal.aborted) this.#inotify.let(folder);
    this.#stop.signal.throwIfAborted();
    return folder;
  }

  /** Lets go of a folder and all below it, which are in no tree any more. */
  async #let(top: Folder): Promise<void> {
    const stack = [top];
    for (let at = stack.pop(); at !== undefined; at = stack.pop()) {
      this.#inotify.let(at);
      for (const child of at.children?.values() ?? []) stack.push(child);
      const breath = this.#breathe();
      if (breath !== undefined) await breath;
    }
  }

  /** Lets others have their turn, where it is time. */
  #breathe(): Promise<void> | undefined {
    if (performance.now() - this.#breathedAt < SLICE_MS) return undefined;
    return new Promise((resolve) =>
      setImmediate(() => {
        this.#breathedAt = performance.now();
        resolve();
      }),
    );
  }

  get isFile(): boolean {
    return this.#file !== undefined;
  }

  /** Of that path of `Seen`. Throws errnos. */
  stat(path: string): Promise<Stats> {
    return this.#reach.stat(path);
  }
}

const below = (path: string, name: string): string => (path === "" ? name : `${path}/${name}`);
