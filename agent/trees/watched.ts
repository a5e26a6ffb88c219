// A folder and all below it, each folder with a watch of the kernel's: begun, and kept, in pieces, so that other requests
// come between. What is there decides, not what events say has happened: of a folder that came or went it is looked
// whether it is there, so that their order does not matter.
import { constants, type Dirent } from "node:fs";
import { open, readdir, realpath, stat } from "node:fs/promises";
import { basename } from "node:path";
import { getSystemErrorName } from "node:util";
import { CanceledError, errnoOf, NotFoundError } from "../../broker/contract/index.ts";
import { mayWait, mountedAt } from "../files/mounts.ts";
import { Folder, type Tree } from "./folder.ts";
import { IN, type Inotify } from "./inotify.ts";

/** Without a breath. */
const SLICE_MS = 2;
/** Names of folders that are to be looked at; where there are more all is looked at. */
const MAX_LOOKS = 10_000;
/** Of what changes in these the kernel tells nothing, and /proc has no end. */
const UNTOLD = new Set("cgroup cgroup2 debugfs proc securityfs sysfs tracefs".split(" "));
/** They end a watch; what was left out for them would be missed without a word. */
const SHORT = new Set(["EMFILE", "ENFILE", "ENOMEM"]);
/** Node has no name for it. */
const O_PATH = 0o10_000_000;
/** ENOENT, as the kernel gives it. */
const GONE = -2;
const CAME_OR_WENT = IN.create | IN.delete | IN.movedFrom | IN.movedTo;
/** Of what is watched itself: perhaps another is there now. (A file that is still open elsewhere has lost a link only.) */
const PERHAPS_GONE = IN.attrib | IN.deleteSelf | IN.moveSelf | IN.unmount;

export interface Seen {
  /** A path below the root. */
  path(path: string): void;
  /** More than is told of. */
  overflow(): void;
  /** It cannot go on, and has let go of all: a FileError, or NotFoundError where another is at the root, or none. */
  failed(error: unknown): void;
}

export class Watched implements Tree {
  readonly #inotify: Inotify;
  readonly #seen: Seen;
  readonly #base: string;
  readonly #recursive: boolean;
  readonly #stop = new AbortController();
  #root: Folder | undefined;
  /** Its name, where the root is no folder. */
  #file: string | undefined;
  #real = "";
  #untold: ReadonlySet<string> = new Set();
  #mayWait = false;
  #looks = new Map<Folder, Set<string>>();
  #lookCount = 0;
  #lookAtAll = false;
  #lookAtRoot = false;
  /** It keeps itself up to date; not yet in the beginning. */
  #begun = false;
  #looking = false;
  #breathedAt = 0;

  constructor(inotify: Inotify, root: string, recursive: boolean, seen: Seen) {
    this.#inotify = inotify;
    this.#base = root.replace(/\/+$/, "");
    this.#recursive = recursive;
    this.#seen = seen;
  }

  /** Resolves when all of it is watched. Throws FileError, errnos, and CanceledError where it was ended. */
  async begin(): Promise<void> {
    const root = this.full("");
    const isFolder = (await stat(root)).isDirectory();
    this.#real = (await realpath(root)).replace(/^\/$/, "");
    this.#lookAtMounts();
    const wd = await this.#watch(root, 0);
    if (wd < 0) throw Object.assign(new Error("it cannot be watched"), { code: getSystemErrorName(wd) });
    this.#root = this.#hold(new Folder(this, "", wd));
    if (!isFolder) this.#file = basename(root);
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
  }

  event(folder: Folder, path: string, mask: number, name: string): void {
    if (this.#stop.signal.aborted) return;
    if (name !== "") {
      this.#seen.path(path === "" ? name : `${path}/${name}`);
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
        if (this.#lookAtRoot) await this.#expectRoot();
        await this.#lookOnce();
      }
      this.#looking = false;
    };
    void look().catch((thrown: unknown) => {
      if (this.#stop.signal.aborted) return;
      this.end();
      this.#seen.failed(thrown);
    });
  }

  /** Throws NotFoundError where it is there no more. */
  async #expectRoot(): Promise<void> {
    this.#lookAtRoot = false;
    const wd = await this.#watch(this.full(""), 0).catch(() => GONE);
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
      this.#lookAtMounts();
      await this.#visit(this.#root, { tell: false, all: true });
      return;
    }
    for (const [folder, names] of looks) {
      for (const name of names) {
        const made = await this.#place(folder, name);
        if (made !== undefined) await this.#visit(made, { tell: true, all: false });
      }
    }
  }

  /** All folders below `top`: those that are new, or `all` of them. */
  async #visit(top: Folder, how: { tell: boolean; all: boolean }): Promise<void> {
    const stack = [top];
    for (let at = stack.pop(); at !== undefined; at = stack.pop()) {
      const path = at.path()?.path;
      if (path === undefined) continue;
      const entries = await this.#entries(path, !this.#begun && at === this.#root);
      const folders = new Set<string>();
      for (const entry of entries) {
        if (how.tell) this.#seen.path(path === "" ? entry.name : `${path}/${entry.name}`);
        if (entry.isDirectory()) folders.add(entry.name);
      }
      for (const name of at.children?.keys() ?? []) if (!folders.has(name)) folders.add(name);
      for (const name of folders) {
        const made = await this.#place(at, name);
        const next = how.all ? at.children?.get(name) : made;
        if (next !== undefined) stack.push(next);
      }
    }
  }

  /** What vanishes or may not be read meanwhile is left out; of the root the error is thrown. */
  async #entries(path: string, isRoot: boolean): Promise<Dirent[]> {
    try {
      return await readdir(this.full(path), { withFileTypes: true });
    } catch (thrown) {
      if (isRoot || SHORT.has(errnoOf(thrown) ?? "")) throw thrown;
      return [];
    } finally {
      this.#breathedAt = performance.now();
      this.#stop.signal.throwIfAborted();
    }
  }

  /** Watches what is there by that name now; resolves to it where it is another than before. */
  async #place(parent: Folder, name: string): Promise<Folder | undefined> {
    await this.#breathe();
    const above = parent.path();
    if (above === undefined) return undefined;
    const path = above.path === "" ? name : `${above.path}/${name}`;
    if (this.#untold.has(`${this.#real}/${path}`)) return undefined;
    const wd = await this.#watch(this.full(path), IN.onlyFolder | IN.dontFollow);
    const before = parent.children?.get(name);
    if (before !== undefined && before.wd === wd) return undefined;
    const made = wd < 0 ? undefined : this.#hold(new Folder(parent, name, wd));
    if (made === undefined) parent.children?.delete(name);
    else {
      parent.children ??= new Map();
      parent.children.set(name, made);
    }
    if (before !== undefined) {
      before.parent = undefined;
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

  #lookAtMounts(): void {
    this.#mayWait = mayWait();
    this.#untold = mountedAt(UNTOLD);
  }

  async #watch(full: string, how: number): Promise<number> {
    if (!this.#mayWait) return this.#inotify.watch(full, how);
    // The kernel's call may then wait for a file system that does not answer, so that a thread for files leads the way.
    const below = (how & IN.dontFollow) !== 0;
    const flags = below ? constants.O_NOFOLLOW | constants.O_DIRECTORY : 0;
    const file = await open(full, O_PATH | flags).catch((thrown: unknown) => {
      if (!below || SHORT.has(errnoOf(thrown) ?? "")) throw thrown;
    });
    if (file === undefined) return GONE;
    try {
      this.#stop.signal.throwIfAborted();
      return this.#inotify.watch(`/proc/self/fd/${file.fd}`, how & ~IN.dontFollow);
    } finally {
      await file.close();
    }
  }

  /** Lets go of a folder and all below it, which are in no tree any more. */
  async #let(top: Folder): Promise<void> {
    const stack = [top];
    for (let at = stack.pop(); at !== undefined; at = stack.pop()) {
      this.#inotify.let(at);
      for (const child of at.children?.values() ?? []) stack.push(child);
      await this.#breathe(false);
    }
  }

  async #breathe(stoppable = true): Promise<void> {
    if (performance.now() - this.#breathedAt >= SLICE_MS) {
      await new Promise((resolve) => setImmediate(resolve));
      this.#breathedAt = performance.now();
    }
    if (stoppable) this.#stop.signal.throwIfAborted();
  }

  /** Where that path of `Seen` lies. */
  full(path: string): string {
    return path === "" || this.#file !== undefined ? this.#base || "/" : `${this.#base}/${path}`;
  }
}
