// Objects as the API server last told of them: list, then watch from there on, for ever. What breaks off is taken up
// again where it was; where only a list helps, there is one.
import { toSandmeshError } from "../../../broker/contract/index.ts";
import type { Line } from "./api/collection.ts";
import { backoffMs, WatchRefused, wait } from "./api/transport.ts";

export interface Log {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
}

export interface Versioned {
  metadata: { resourceVersion: string };
}

export interface Source<T> {
  list(signal: AbortSignal): Promise<{ items: T[]; version: string }>;
  watch(version: string, signal: AbortSignal): AsyncGenerator<Line<T>, void>;
}

export interface Sink<T> {
  /** All there are, asked for at `startedAt` (performance.now() ms). */
  listed(items: readonly T[], startedAt: number): void;
  changed(type: "ADDED" | "MODIFIED" | "DELETED", object: T): void;
}

const GONE = 410;
/** A watch whose news are overdue is begun anew this often at most, and only after as long without a word. */
const ANEW_MS = 10_000;
/** After the server ended it as agreed: not all at once. */
const RESUME_MS = 100;

export class Reflector<T extends Versioned> {
  readonly #source: Source<T>;
  readonly #sink: Sink<T>;
  readonly #log: Log;
  readonly #what: string;
  readonly #now: () => number;
  readonly #stop = new AbortController();
  readonly #synced = Promise.withResolvers<void>();
  #running: Promise<void> | undefined;
  /** Where the watch goes on from; undefined before the first list, and where only a list helps. */
  #version: string | undefined;
  #watching: AbortController | undefined;
  /** When the watch was last begun anew, or heard. */
  #aliveAt = Number.NEGATIVE_INFINITY;
  #listing = false;

  /** `now`: ms, that never go back. */
  constructor(source: Source<T>, sink: Sink<T>, log: Log, what: string, now = () => performance.now()) {
    this.#source = source;
    this.#sink = sink;
    this.#log = log;
    this.#what = what;
    this.#now = now;
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

  /** A list is under way, which may not have what is being made now. */
  get listing(): boolean {
    return this.#listing;
  }

  /** What somebody waits for is overdue: the watch may have died without a word (seen with HTTP clients under load), so
   * it is begun anew where it stands. One that speaks of others lives: it is the server that takes its time. */
  overdue(): void {
    const now = this.#now();
    if (now - this.#aliveAt < ANEW_MS) return;
    this.#aliveAt = now;
    this.#watching?.abort();
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    for (let failures = 0; !signal.aborted; ) {
      try {
        this.#version ??= await this.#list();
        await this.#watch(this.#version, () => {
          failures = 0;
        });
        await wait(Math.random() * RESUME_MS, signal);
      } catch (thrown) {
        if (signal.aborted) return;
        failures++;
        const error = toSandmeshError(thrown);
        // Cut off, it goes on from where it was; refused, or at what it cannot read, only a list helps.
        if (thrown instanceof WatchRefused || error.reason === "unreadable") this.#version = undefined;
        this.#log.warn({ error: error.message, failures }, `the watch on ${this.#what} broke off`);
        await wait(backoffMs(failures), signal).catch(() => undefined);
      }
    }
  }

  async #list(): Promise<string> {
    const startedAt = performance.now();
    this.#listing = true;
    const { items, version } = await this.#source.list(this.#stop.signal).finally(() => {
      this.#listing = false;
    });
    this.#sink.listed(items, startedAt);
    this.#synced.resolve();
    return version;
  }

  async #watch(from: string, alive: () => void): Promise<void> {
    const anew = new AbortController();
    this.#watching = anew;
    try {
      for await (const line of this.#source.watch(from, AbortSignal.any([this.#stop.signal, anew.signal]))) {
        alive();
        this.#aliveAt = this.#now();
        if (line.type === "ERROR") {
          if (line.code !== GONE) this.#log.warn({ error: line.message }, `the watch on ${this.#what} ended`);
          this.#version = undefined;
          return;
        }
        if (line.type === "BOOKMARK") this.#version = line.version;
        else {
          this.#version = line.object.metadata.resourceVersion;
          this.#sink.changed(line.type, line.object);
        }
      }
    } catch (error) {
      if (!anew.signal.aborted) throw error;
    } finally {
      this.#watching = undefined;
    }
  }
}
