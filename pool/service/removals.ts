// Calls to the providers' remove: so many at once, in batches where a provider can do that, each with a time limit.
import { ProviderError, type SandmeshError, toSandmeshError } from "../../broker/contract/index.ts";
import type { Provider } from "../provider/provider.ts";
import type { Core } from "./core.ts";

export interface Removal {
  sandbox: string;
  uid: string | undefined;
  /** A second try goes alone, so that one that cannot be removed does not hold up its batch. */
  alone: boolean;
  done(failure: SandmeshError | undefined): void;
}

/** What one removeMany takes; bounded so that its time limit fits. */
const MAX_BATCH = 256;

export class Removals {
  readonly #core: Core;
  readonly #waiting = new Map<Provider, Removal[]>();
  /** By deadline key: gives up waiting for a call that takes too long. */
  readonly #running = new Map<string, () => void>();
  #calls = 0;
  #scheduled = false;

  constructor(core: Core) {
    this.#core = core;
  }

  get running(): number {
    return this.#running.size;
  }

  add(provider: Provider, removal: Removal): void {
    const waiting = this.#waiting.get(provider);
    if (waiting === undefined) this.#waiting.set(provider, [removal]);
    else waiting.push(removal);
    this.#schedule();
  }

  /** The deadline `key` of a call has passed. */
  timeOut(key: string): void {
    this.#running.get(key)?.();
  }

  /** After this tick, so that all of a run come in one batch. */
  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    queueMicrotask(() => {
      this.#scheduled = false;
      this.#pump();
    });
  }

  #pump(): void {
    for (const [provider, waiting] of this.#waiting) {
      while (waiting.length > 0 && this.#running.size < this.#core.limits.maxRemoving) {
        const batch = takeBatch(provider, waiting);
        this.#call(provider, batch);
      }
      if (waiting.length === 0) this.#waiting.delete(provider);
    }
  }

  #call(provider: Provider, batch: Removal[]): void {
    const key = `remove:${++this.#calls}`;
    const abort = new AbortController();
    const settle = (failure: SandmeshError | undefined): void => {
      if (!this.#running.delete(key)) return;
      this.#core.deadlines.clear(key);
      for (const removal of batch) removal.done(failure);
      this.#schedule();
    };
    this.#running.set(key, () => {
      abort.abort();
      const late = `provider ${provider.name} did not remove it within ${this.#core.limits.removeTimeoutMs} ms`;
      settle(new ProviderError(late, { reason: "remove_timeout" }));
    });
    this.#core.deadlines.set(key, this.#core.now() + this.#core.limits.removeTimeoutMs);
    remove(provider, batch, abort.signal).then(
      () => settle(undefined),
      (thrown: unknown) => settle(toSandmeshError(thrown)),
    );
  }
}

function takeBatch(provider: Provider, waiting: Removal[]): Removal[] {
  if (provider.removeMany === undefined) return waiting.splice(0, 1);
  const firstAlone = waiting.slice(0, MAX_BATCH).findIndex((removal) => removal.alone);
  return waiting.splice(0, firstAlone === -1 ? MAX_BATCH : Math.max(1, firstAlone));
}

async function remove(provider: Provider, batch: readonly Removal[], signal: AbortSignal): Promise<void> {
  const [only] = batch;
  if (batch.length > 1 && provider.removeMany !== undefined) await provider.removeMany(batch, signal);
  else if (only !== undefined) await provider.remove(only.sandbox, only.uid, signal);
}
