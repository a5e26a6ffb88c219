// The pods as the API server last told of them. Each change is handed on once; who waits for a pod's end hears of it.
import type { PodView } from "./observe.ts";
import { type Log, Reflector, type Source } from "./reflect.ts";

export type Change = { type: "seen"; pod: PodView } | { type: "gone"; pod: PodView };

/** Waits for the end of one pod, from before it is asked for. */
interface Waiter {
  readonly uids: Set<string>;
  uid: string | undefined;
  /** performance.now() of the delete's answer. */
  ackedAt: number;
  resolve(): void;
}

export class Informer {
  readonly #reflector: Reflector<PodView>;
  readonly #handle: (change: Change) => void;
  readonly #pods = new Map<string, PodView>();
  readonly #waiters = new Map<string, Set<Waiter>>();
  /** Made while a list was under way, which may not have them yet. */
  readonly #newer = new Set<string>();

  /** `now`: see Reflector. */
  constructor(
    source: Source<PodView>,
    log: Log,
    handle: (change: Change) => void,
    now = () => performance.now(),
  ) {
    this.#handle = handle;
    const changed = (type: string, pod: PodView) => (type === "DELETED" ? this.#gone(pod) : this.#seen(pod));
    const listed = (pods: readonly PodView[], startedAt: number) => this.#listed(pods, startedAt);
    this.#reflector = new Reflector(source, { listed, changed }, log, "pods", now);
  }

  /** Resolves when the first list is in. */
  start(): Promise<void> {
    return this.#reflector.start();
  }

  stop(): Promise<void> {
    return this.#reflector.stop();
  }

  /** See Reflector. */
  overdue(): void {
    this.#reflector.overdue();
  }

  get(name: string): PodView | undefined {
    return this.#pods.get(name);
  }

  /** A pod that we know of before the watch does. */
  add(pod: PodView): void {
    if (!this.#pods.has(pod.metadata.name)) this.#pods.set(pod.metadata.name, pod);
    if (this.#reflector.listing) this.#newer.add(pod.metadata.name);
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

  #listed(pods: readonly PodView[], startedAt: number): void {
    const there = new Set([...pods.map((pod) => pod.metadata.name), ...this.#newer]);
    this.#newer.clear();
    for (const [name, pod] of this.#pods) if (!there.has(name)) this.#gone(pod);
    for (const pod of pods) this.#seen(pod);
    for (const [name, waiters] of this.#waiters) {
      if (there.has(name)) continue;
      for (const waiter of waiters) if (waiter.ackedAt < startedAt) waiter.resolve();
    }
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
