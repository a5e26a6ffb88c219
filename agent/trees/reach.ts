// The way to what is watched, and to what is below it: by the ground of whoever asked, so that it does not leave a root.
import type { Stats } from "node:fs";
import { lstat, stat } from "node:fs/promises";
import { SandmeshError } from "../../broker/contract/index.ts";
import { type Below, type Ground, withEntry, withTarget } from "../files/ground.ts";
import type { Pin } from "../files/root.ts";
import { GONE, IN, type Inotify, isShort } from "./inotify.ts";

export interface ReachOptions {
  inotify: Inotify;
  ground: Ground;
  /** Of the root of what is watched. */
  path: string;
  signal: AbortSignal;
}

export class Reach {
  readonly #inotify: Inotify;
  readonly #ground: Ground;
  readonly #path: string;
  readonly #signal: AbortSignal;
  #pin: Pin | undefined;
  /** Undefined of a file. */
  #below: Below | undefined;

  constructor({ inotify, ground, path, signal }: ReachOptions) {
    this.#inotify = inotify;
    this.#ground = ground;
    this.#path = path;
    this.#signal = signal;
  }

  /** Resolves to a path to the root. Throws FileError and errnos. */
  async open(): Promise<{ at: string; isFolder: boolean }> {
    this.#pin = await this.#ground.pin(this.#path);
    const { at } = this.#pin;
    const isFolder = (await stat(at)).isDirectory();
    if (isFolder) this.#below = await this.#ground.below(at);
    // The end came meanwhile.
    if (this.#signal.aborted) this.close();
    this.#signal.throwIfAborted();
    return { at, isFolder };
  }

  close(): void {
    void this.#below?.close();
    void this.#pin?.close();
    this.#below = undefined;
    this.#pin = undefined;
  }

  /** The number that `full` is watched by, or a negative errno; `how` are further flags. */
  async watch(full: string, how: number, mayWait: boolean): Promise<number> {
    if (!mayWait) return this.#inotify.watch(full, how);
    return await this.#inotify.watchByThread(full, how, this.#signal);
  }

  /** The number of what the root's path leads to now. */
  async watchRoot(mayWait: boolean): Promise<number> {
    const watch = (at: string): Promise<number> => this.watch(at, 0, mayWait);
    return await withTarget(this.#ground, this.#path, watch).catch((thrown: unknown) => {
      if (isShort(thrown)) throw thrown;
      return GONE;
    });
  }

  /** The number of the folder below the root; GONE where none is there. */
  async watchBelow(path: string, mayWait: boolean): Promise<number> {
    const below = this.#below;
    if (below === undefined) return GONE;
    const how = IN.onlyFolder | (below.isPinned ? 0 : IN.dontFollow);
    try {
      return await below.reach(path, (full) => this.watch(full, how, mayWait));
    } catch (thrown) {
      if (!below.isPinned || thrown instanceof SandmeshError || isShort(thrown)) throw thrown;
      return GONE;
    }
  }

  /** `act` with a path to the folder below the root, or the root itself; `follow`: that path is a link to it. */
  async below<T>(path: string, act: (full: string, follow: boolean) => Promise<T>): Promise<T | undefined> {
    const below = this.#below;
    return await below?.reach(path, (full) => act(full, path === "" || below.isPinned));
  }

  /** Of what is below the root, or of the root itself where it is a file. Throws errnos. */
  async stat(path: string): Promise<Stats> {
    if (this.#below !== undefined) return await this.#below.stat(path);
    return await withEntry(this.#ground, this.#path, (at) => lstat(at));
  }
}
