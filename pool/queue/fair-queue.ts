// The queue of acquires: bounded, and fair between tenants and, within a tenant, between runs.
// Each take goes to the tenant, and within it to the run, that has waited longest for its turn (round robin: every
// item costs one create). All operations are O(1): a Map keeps its insertion order, so its first key is whose turn it
// is, and taking a turn moves the key to the end.

export interface QueueBounds {
  maxQueued: number;
  maxQueuedPerTenant: number;
}

export interface Queued {
  readonly tenant: string;
  readonly run: string;
  /** Unique within the tenant. */
  readonly id: string;
}

interface TenantQueue<T> {
  runs: Map<string, Map<string, T>>;
  size: number;
}

export class FairQueue<T extends Queued> {
  readonly #tenants = new Map<string, TenantQueue<T>>();
  readonly #bounds: QueueBounds;
  #size = 0;

  constructor(bounds: QueueBounds) {
    this.#bounds = bounds;
  }

  get size(): number {
    return this.#size;
  }

  sizeOf(tenant: string): number {
    return this.#tenants.get(tenant)?.size ?? 0;
  }

  /** Why `extra` more of `tenant` would not fit; undefined where they do. */
  full(tenant: string, extra = 0): "tenant" | "pool" | undefined {
    if (this.sizeOf(tenant) + extra >= this.#bounds.maxQueuedPerTenant) return "tenant";
    return this.#size + extra >= this.#bounds.maxQueued ? "pool" : undefined;
  }

  /** Adds `item` behind those of its run; false, and nothing changed, where a bound is reached or it is there. */
  push(item: T): boolean {
    if (this.full(item.tenant) !== undefined) return false;
    let tenant = this.#tenants.get(item.tenant);
    if (tenant === undefined) {
      tenant = { runs: new Map(), size: 0 };
      this.#tenants.set(item.tenant, tenant);
    }
    let run = tenant.runs.get(item.run);
    if (run === undefined) {
      run = new Map();
      tenant.runs.set(item.run, run);
    }
    if (run.has(item.id)) return false;
    run.set(item.id, item);
    tenant.size++;
    this.#size++;
    return true;
  }

  /** Whose turn it is, taken out; a run whose next one `mayGo` refuses keeps its turn. */
  take(mayGo: (item: T) => boolean = () => true): T | undefined {
    for (const [tenantName, tenant] of this.#tenants) {
      for (const [runName, run] of tenant.runs) {
        for (const item of run.values()) {
          if (!mayGo(item)) break;
          this.remove(item);
          // Behind the others of its kind, if it has more.
          if (tenant.runs.delete(runName) && run.size > 0) tenant.runs.set(runName, run);
          if (this.#tenants.delete(tenantName) && tenant.size > 0) this.#tenants.set(tenantName, tenant);
          return item;
        }
      }
    }
    return undefined;
  }

  /** Takes `item` out, wherever it stands; false where it is not there. */
  remove(item: Queued): boolean {
    const tenant = this.#tenants.get(item.tenant);
    const run = tenant?.runs.get(item.run);
    if (tenant === undefined || run === undefined || !run.delete(item.id)) return false;
    tenant.size--;
    this.#size--;
    if (run.size === 0) tenant.runs.delete(item.run);
    if (tenant.size === 0) this.#tenants.delete(item.tenant);
    return true;
  }
}
