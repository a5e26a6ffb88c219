// The pods as the API server last told of them: list, then watch from there on, for ever. Each change is handed on once.
import { toSandmeshError } from "../../../broker/contract/index.ts";
import type { PodApi, WatchLine } from "./api/pods.ts";
import { backoffMs, WatchRefused, wait } from "./api/transport.ts";
import type { PodView } from "./observe.ts";

export interface Log {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
}

export type Change = { type: "seen"; pod: PodView } | { type: "gone"; pod: PodView };

const GONE = 410;
/** A watch whose news are overdue is begun anew this often at most. */
const ANEW_MS = 10_000;

/** Waits for the end of one pod, from before it is asked for. */
interface Waiter {
  readonly uids: Set<string>;
  uid: string | undefined;
  /** performance.now() of the delete's answer. */
  ackedAt: number;
  resolve(): void;
}

export class Informer {
  readonly #api: PodApi;
  readonly #log: Log;
  readonly #handle: (change: Change) => void;
  readonly #pods = new Map<string, PodView>();
  readonly #waiters = new Map<string, Set<Waiter>>();
  readonly #stop = new AbortController();
  readonly #synced = Promise.withResolvers<void>();
  #running: Promise<void> | undefined;
  /** Where the watch goes on from; undefined before the first list, and where only a list helps. */
  #version: string | undefined;
  /** Made while a list was under way, which may not have them yet. */
  readonly #newer = new Set<string>();
  #watching: AbortController | undefined;
  #anewAt = 0;
  #listing = false;

  constructor(api: PodApi, log: Log, handle: (change: Change) => void) {
    this.#api = api;
    this.#log = log;
    this.#handle = handle;
  }

  /** Resolves when the first list is in. */
  start(): Promise<void> {
    this.#running ??= this.#run();
    return this.#synced.promise;
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#running;
    this.#synced.resolve();
  }

  get(name: string): PodView | undefined {
    return this.#pods.get(name);
  }

  /** A pod that we know of before the watch does. */
  add(pod: PodView): void {
    if (!this.#pods.has(pod.metadata.name)) this.#pods.set(pod.metadata.name, pod);
    if (this.#listing) this.#newer.add(pod.metadata.name);
  }

  /** What somebody waits for is overdue: the watch may have died without a word (seen with HTTP clients under load), so
   * it is begun anew where it stands. */
  overdue(): void {
    const now = performance.now();
    if (now - this.#anewAt < ANEW_MS) return;
    this.#anewAt = now;
    this.#watching?.abort();
  }

  /** To be called before the delete is sent, so that its end is not missed. */
  awaitGone(name: string): { acked(uid: string): void; gone: Promise<void>; forget(): void } {
    const { promise, resolve } = Promise.withResolvers<void>();
    const waiter: Waiter = { uids: new Set(), uid: undefined, ackedAt: Number.POSITIVE_INFINITY, resolve };
    const waiters = this.#waiters.get(name) ?? new Set();
    this.#waiters.set(name, waiters.add(waiter));
    return {
      acked(uid) {
        waiter.uid = uid;
        waiter.ackedAt = performance.now();
        if (waiter.uids.has(uid)) resolve();
      },
      gone: promise,
      forget: () => {
        waiters.delete(waiter);
        if (waiters.size === 0 && this.#waiters.get(name) === waiters) this.#waiters.delete(name);
      },
    };
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    for (let failures = 0; !signal.aborted; ) {
      try {
        this.#version ??= await this.#list();
        await this.#watch(this.#version, () => {
          failures = 0;
        });
        // The server ended it as agreed, or wants a new list: not all at once.
        await wait(Math.random() * 100, signal);
      } catch (error) {
        if (signal.aborted) return;
        failures++;
        // Cut off, it goes on from where it was; refused, only a list helps.
        if (error instanceof WatchRefused) this.#version = undefined;
        this.#log.warn({ error: toSandmeshError(error).message, failures }, "the watch on pods broke off");
        await wait(backoffMs(failures), signal).catch(() => undefined);
      }
    }
  }

  async #list(): Promise<string> {
    const startedAt = performance.now();
    this.#listing = true;
    const { pods, version } = await this.#api.list(this.#stop.signal).finally(() => {
      this.#listing = false;
    });
    const there = new Set([...pods.map((pod) => pod.metadata.name), ...this.#newer]);
    this.#newer.clear();
    for (const [name, pod] of this.#pods) if (!there.has(name)) this.#gone(pod);
    for (const pod of pods) this.#seen(pod);
    for (const [name, waiters] of this.#waiters) {
      if (there.has(name)) continue;
      for (const waiter of waiters) if (waiter.ackedAt < startedAt) waiter.resolve();
    }
    this.#synced.resolve();
    return version;
  }

  async #watch(from: string, alive: () => void): Promise<void> {
    const anew = new AbortController();
    this.#watching = anew;
    try {
      for await (const line of this.#api.watch(from, AbortSignal.any([this.#stop.signal, anew.signal]))) {
        alive();
        if (line.type === "ERROR") {
          if (line.object.code !== GONE)
            this.#log.warn({ error: line.object.message }, "the watch was ended");
          this.#version = undefined;
          return;
        }
        this.#version = line.object.metadata.resourceVersion;
        this.#heed(line);
      }
    } catch (error) {
      if (!anew.signal.aborted) throw error;
    } finally {
      this.#watching = undefined;
    }
  }

  #heed(line: WatchLine): void {
    if (line.type === "ADDED" || line.type === "MODIFIED") this.#seen(line.object);
    else if (line.type === "DELETED") this.#gone(line.object);
  }

  #seen(pod: PodView): void {
    this.#pods.set(pod.metadata.name, pod);
    this.#handle({ type: "seen", pod });
  }

  #gone(pod: PodView): void {
    const { name, uid } = pod.metadata;
    if (this.#pods.get(name)?.metadata.uid === uid) this.#pods.delete(name);
    for (const waiter of this.#waiters.get(name) ?? []) {
      waiter.uids.add(uid);
      if (waiter.uid === uid) waiter.resolve();
    }
    this.#handle({ type: "gone", pod });
  }
}
