// Calls to the providers' remove: of each provider so many sandboxes at once, in batches where it can do that.
import { ProviderError, type SandmeshError, toSandmeshError } from "../../broker/contract/index.ts";
import { MAX_REMOVED_TOGETHER, type Provider, type Removed } from "../provider/provider.ts";
import type { Core } from "./core.ts";

export interface Removal extends Removed {
  /** A second try goes alone, so that one that cannot be removed does not hold up its batch. */
  alone: boolean;
  done(failure: SandmeshError | undefined): void;
}

export type Remover = Pick<Provider, "name" | "maxRemoving" | "remove" | "removeMany">;

export const REMOVE_DEADLINE = "remove:";

/** What waits for one provider, and how many are under way: one that hangs keeps no other's waiting. */
class Lane {
  readonly provider: Remover;
  readonly #most: number;
  readonly #first: Removal[] = [];
  readonly #again: Removal[] = [];
  #running = 0;
  #runningAgain = 0;

  constructor(provider: Remover, maxRemoving: number) {
    this.provider = provider;
    this.#most = Math.min(maxRemoving, provider.maxRemoving ?? maxRemoving);
  }

  get running(): number {
    return this.#running;
  }

  add(removal: Removal): void {
    (removal.alone ? this.#again : this.#first).push(removal);
  }

  /** What may begin now; empty where it has to wait. */
  begin(): Removal[] {
    const batch = this.#next();
    this.#running += batch.length;
    if (batch[0]?.alone === true) this.#runningAgain++;
    return batch;
  }

  end({ alone }: Removal): void {
    this.#running--;
    if (alone) this.#runningAgain--;
  }

  #next(): Removal[] {
    const free = this.#most - this.#running;
    // However many cannot be removed: half of the places are for others.
    if (free > 0 && this.#runningAgain < Math.max(1, this.#most >> 1) && this.#again.length > 0) {
      return this.#again.splice(0, 1);
    }
    const full = this.provider.removeMany === undefined ? 1 : MAX_REMOVED_TOGETHER;
    // Places are left one by one: whoever took each at once would send batches of one. And beside what is stuck more than
    // half of them may never be free together.
    const worth = Math.min(full, Math.ceil(this.#most / 2), this.#first.length);
    return free < worth ? [] : this.#first.splice(0, Math.min(full, free));
  }
}

export class Removals {
  readonly #core: Pick<Core, "limits" | "deadlines" | "now">;
  readonly #lanes = new Map<Remover, Lane>();
  /** By deadline key: gives up waiting for what a call has not told of. */
  readonly #calls = new Map<string, () => void>();
  #begun = 0;
  #scheduled = false;

  constructor(core: Pick<Core, "limits" | "deadlines" | "now">) {
    this.#core = core;
  }

  /** Sandboxes under removal. */
  get running(): number {
    let sum = 0;
    for (const lane of this.#lanes.values()) sum += lane.running;
    return sum;
  }

  add(provider: Remover, removal: Removal): void {
    let lane = this.#lanes.get(provider);
    if (lane === undefined) {
      lane = new Lane(provider, this.#core.limits.maxRemoving);
      this.#lanes.set(provider, lane);
    }
    lane.add(removal);
    this.#schedule();
  }

  /** The deadline `key` of a call has passed. */
  timeOut(key: string): void {
    this.#calls.get(key)?.();
  }

  /** After this tick, so that all of a run come in one batch. */
  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    queueMicrotask(() => {
      this.#scheduled = false;
      for (const lane of this.#lanes.values()) {
        for (let batch = lane.begin(); batch.length > 0; batch = lane.begin()) this.#call(lane, batch);
      }
    });
  }

  #call(lane: Lane, batch: readonly Removal[]): void {
    const { deadlines, limits } = this.#core;
    const { provider } = lane;
    const key = `${REMOVE_DEADLINE}${++this.#begun}`;
    const abort = new AbortController();
    const left = new Set(batch);
    /** From the last one on: a batch of many takes longer than one, and is not given up as long as it goes on. */
    const arm = (): void => deadlines.set(key, this.#core.now() + limits.removeTimeoutMs);
    const settle = (removal: Removal, failure: SandmeshError | undefined): void => {
      if (!left.delete(removal)) return;
      lane.end(removal);
      if (left.size > 0) arm();
      else {
        this.#calls.delete(key);
        deadlines.clear(key);
      }
      removal.done(failure);
      this.#schedule();
    };
    this.#calls.set(key, () => {
      abort.abort();
      const late = `provider ${provider.name} did not remove it within ${limits.removeTimeoutMs} ms`;
      for (const removal of [...left]) settle(removal, new ProviderError(late, { reason: "remove_timeout" }));
    });
    arm();
    const ends = remove(provider, batch, abort.signal);
    for (const [i, removal] of batch.entries()) {
      ends[i]?.then(
        () => settle(removal, undefined),
        (thrown: unknown) => settle(removal, toSandmeshError(thrown)),
      );
    }
  }
}

function remove(provider: Remover, batch: readonly Removal[], signal: AbortSignal): readonly Promise<void>[] {
  if (batch.length > 1 && provider.removeMany !== undefined) return provider.removeMany(batch, signal);
  return batch.map(({ sandbox, uid }) => provider.remove(sandbox, uid, signal));
}
