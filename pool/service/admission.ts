// Whether an acquire is let in: draining, quotas and the bounds of the queue.
import { DrainingError, QueueFullError, QuotaExceededError } from "../../broker/contract/index.ts";
import type { PoolLimits } from "../config.ts";
import type { Runs } from "./runs.ts";
import type { Sandboxes } from "./sandboxes.ts";

export class Admission {
  readonly #limits: PoolLimits;
  readonly #sandboxes: Sandboxes;
  readonly #runs: Runs;
  readonly #waitingOf = new Map<string, number>();
  #waiting = 0;
  draining = false;

  constructor(limits: PoolLimits, sandboxes: Sandboxes, runs: Runs) {
    this.#limits = limits;
    this.#sandboxes = sandboxes;
    this.#runs = runs;
  }

  /** Tenants of which any waits. */
  tenants(): Iterable<string> {
    return this.#waitingOf.keys();
  }

  /** Throws DrainingError, QuotaExceededError or QueueFullError, saying whose bound it is. */
  admit(tenant: string, run: string): void {
    if (this.draining)
      throw new DrainingError(
        "the pool is being emptied and takes no new acquires, until an operator ends that (`sandmesh drain --off`)",
      );
    const { maxQueuedPerTenant, maxQueued, maxSandboxesPerTenant, maxSandboxesPerRun } = this.#limits;
    const waiting = this.#waitingOf.get(tenant) ?? 0;
    if (waiting + this.#sandboxes.ofTenant(tenant).size >= maxSandboxesPerTenant) {
      throw new QuotaExceededError(`tenant ${tenant} has its ${maxSandboxesPerTenant} sandboxes`);
    }
    const live = this.#runs.get(tenant, run);
    if (live !== undefined && live.waiting.size + live.sandboxes.size >= maxSandboxesPerRun) {
      throw new QuotaExceededError(`run ${run} has its ${maxSandboxesPerRun} sandboxes`);
    }
    if (waiting >= maxQueuedPerTenant || this.#waiting >= maxQueued) {
      const whose = waiting >= maxQueuedPerTenant ? `of tenant ${tenant}` : "of the pool";
      throw new QueueFullError(`the queue ${whose} is full; ask again later`);
    }
  }

  entered(tenant: string): void {
    this.#waiting++;
    this.#waitingOf.set(tenant, (this.#waitingOf.get(tenant) ?? 0) + 1);
  }

  left(tenant: string): void {
    this.#waiting--;
    const left = (this.#waitingOf.get(tenant) ?? 1) - 1;
    if (left === 0) this.#waitingOf.delete(tenant);
    else this.#waitingOf.set(tenant, left);
  }
}
