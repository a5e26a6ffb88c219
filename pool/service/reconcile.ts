// Compares what the pool knows with what the providers have: at the start to recover, then now and again for what no
// event told. What is there and unknown is removed; what is known and not there is lost.
import { ProviderError, toSandmeshError } from "../../broker/contract/index.ts";
import { unlessAborted } from "../../broker/link/unless-aborted.ts";
import { isEnding } from "../lifecycle/record.ts";
import type { Listed, Provider } from "../provider/provider.ts";
import type { Core } from "./core.ts";
import type { Removals } from "./removals.ts";
import type { Sandboxes } from "./sandboxes.ts";

export const RECONCILE_DEADLINE = "reconcile";
/** `status` asks a provider again after this; a list of thousands is not free. */
const COUNT_FRESH_MS = 1_000;

export class Reconciler {
  readonly #core: Core;
  readonly #sandboxes: Sandboxes;
  readonly #removals: Removals;
  readonly #counts = new Map<Provider, { count: number; at: number }>();
  readonly #listing = new Map<Provider, Promise<Listed[]>>();
  /** Unknown ones whose removal is under way. */
  readonly #orphans = new Set<string>();

  constructor(core: Core, sandboxes: Sandboxes, removals: Removals) {
    this.#core = core;
    this.#sandboxes = sandboxes;
    this.#removals = removals;
  }

  /** All that a provider has; rejects with a SandmeshError when it fails or takes too long. One call at a time. */
  list(provider: Provider): Promise<Listed[]> {
    const running = this.#listing.get(provider);
    if (running !== undefined) return running;
    const listing = this.#call(provider).finally(() => this.#listing.delete(provider));
    this.#listing.set(provider, listing);
    return listing;
  }

  async #call(provider: Provider): Promise<Listed[]> {
    const signal = AbortSignal.timeout(this.#core.limits.providerListMs);
    const late = `provider ${provider.name} did not list within ${this.#core.limits.providerListMs} ms`;
    const isLate = () => new ProviderError(late, { reason: "list_timeout" });
    try {
      const listed = await unlessAborted(provider.list(signal), signal, isLate);
      this.#counts.set(provider, { count: listed.length, at: this.#core.now() });
      return listed;
    } catch (thrown) {
      const error = toSandmeshError(thrown);
      this.#core.choice.passOver(provider.name, error.message, this.#core.now());
      throw error;
    }
  }

  /** How many a provider has; the last known number where it does not say. */
  async count(provider: Provider): Promise<number> {
    const known = this.#counts.get(provider);
    if (known !== undefined && this.#core.now() - known.at < COUNT_FRESH_MS) return known.count;
    try {
      return (await this.list(provider)).length;
    } catch {
      return known?.count ?? 0;
    }
  }

  async reconcile(): Promise<void> {
    // At once: one that does not answer keeps no other waiting.
    await Promise.all([...this.#core.providers.values()].map((provider) => this.#compare(provider)));
    this.arm();
  }

  async #compare(provider: Provider): Promise<void> {
    const startedAt = this.#core.now();
    try {
      const listed = await this.list(provider);
      await this.removeOrphans(provider, listed);
      this.#findLost(provider, listed, startedAt);
    } catch (error) {
      const { name } = provider;
      this.#core.log.warn({ provider: name, error: String(error) }, "the provider could not be listed");
    }
  }

  arm(): void {
    this.#core.deadlines.set(RECONCILE_DEADLINE, this.#core.now() + this.#core.limits.reconcileMs);
  }

  /** What nobody has a record of, or only the memory of its end. Rejects where another pool has taken over: then it is
   * that one's. What is listed was intended before, and by us or an earlier pool if we are still the current one. */
  async removeOrphans(provider: Provider, listed: readonly Listed[]): Promise<void> {
    if (!listed.some(({ sandbox }) => this.#isOrphan(sandbox))) return;
    await this.#core.store.current();
    for (const { sandbox, uid } of listed) {
      if (!this.#isOrphan(sandbox)) continue;
      this.#orphans.add(sandbox);
      this.#core.log.warn({ provider: provider.name, sandbox }, "removing an orphan");
      this.#removals.add(provider, {
        sandbox,
        uid,
        alone: false,
        done: (failure) => {
          this.#orphans.delete(sandbox);
          if (failure === undefined) this.#core.counters.orphansRemoved++;
          // Otherwise the next comparison finds it again.
          else this.#core.log.warn({ sandbox, error: failure.message }, "an orphan could not be removed");
        },
      });
    }
  }

  #isOrphan(sandbox: string): boolean {
    const live = this.#sandboxes.get(sandbox);
    return (live === undefined || live.record.state === "gone") && !this.#orphans.has(sandbox);
  }

  #findLost(provider: Provider, listed: readonly Listed[], startedAt: number): void {
    const there = new Map(listed.map((each) => [each.sandbox, each]));
    for (const live of this.#sandboxes.all()) {
      const { provider: name, sandbox, state, createdAt } = live.record;
      if (name !== provider.name || isEnding(state) || state === "gone") continue;
      const found = there.get(sandbox);
      if (found?.phase === "failed") {
        const message = found.reason ?? "it failed";
        this.#sandboxes.apply(live, {
          type: "provider_failed",
          code: "boot_failed",
          reason: "exited",
          message,
        });
      } else if (found === undefined && createdAt !== undefined && createdAt < startedAt) {
        const message = "the provider does not have it any more";
        this.#sandboxes.apply(live, { type: "provider_lost", reason: "deleted", message });
      }
    }
  }
}
