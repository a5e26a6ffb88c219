// The runs there are: their leases, and what belongs to each.
import { isEnding, type SandboxRecord } from "../lifecycle/record.ts";
import { graceRun, hasLapsed, newRun, type RunRecord, renewRun, touchRun } from "../runs/run.ts";
import type { Core } from "./core.ts";

export interface LiveRun {
  record: RunRecord;
  /** The time that the records have; a burst of acquires puts it off without a write each. */
  writtenExpiresAt: number;
  /** Ids of its sandboxes that are not gone. */
  readonly sandboxes: Set<string>;
  /** How many of them someone holds (granted or leased). */
  held: number;
  /** How many of them are not yet given to anyone. */
  starting: number;
  /** Ids of its acquires that wait for a create. */
  readonly waiting: Set<string>;
}

const newLive = (record: RunRecord): LiveRun => ({
  record,
  writtenExpiresAt: record.expiresAt,
  sandboxes: new Set(),
  held: 0,
  starting: 0,
  waiting: new Set(),
});

export const runKey = (tenant: string, run: string): string => `${tenant}/${run}`;
const DEADLINE = "run:";

export class Runs {
  readonly #core: Core;
  readonly #runs = new Map<string, LiveRun>();

  constructor(core: Core) {
    this.#core = core;
  }

  get size(): number {
    return this.#runs.size;
  }

  get(tenant: string, run: string): LiveRun | undefined {
    return this.#runs.get(runKey(tenant, run));
  }

  byDeadline(key: string): LiveRun | undefined {
    return key.startsWith(DEADLINE) ? this.#runs.get(key.slice(DEADLINE.length)) : undefined;
  }

  /** The run of an acquire or a grant: made where it is new, alive for at least `leaseMs` from now. */
  touch(tenant: string, run: string, leaseMs: number, renews = false): LiveRun {
    const live = this.get(tenant, run);
    if (live === undefined) return this.#add(newRun(tenant, run, leaseMs, this.#core.now(), renews), true);
    this.extend(live, leaseMs, renews);
    return live;
  }

  /** As `touch`. Written only where the records lag by a third of the lease: a pool that starts gives all runs a
   * grace, which is what the lag could cost. */
  extend(live: LiveRun, leaseMs: number, renews = false): void {
    const record = touchRun(live.record, leaseMs, this.#core.now(), renews);
    if (record === live.record || this.get(record.tenant, record.run) !== live) return;
    if (record.expiresAt - live.writtenExpiresAt > leaseMs / 3) {
      live.writtenExpiresAt = record.expiresAt;
      this.#write(record);
    }
    // The deadline stays: at the time that its daemons know, they are told the new one.
    const over = live.record.expiresAt <= this.#core.now();
    live.record = record;
    if (over) this.arm(live);
  }

  /** One write, whatever the number of its sandboxes; resolves when it is durable. */
  renew(live: LiveRun, leaseMs: number | undefined): Promise<void> {
    return this.#set(live, renewRun(live.record, leaseMs, this.#core.now()));
  }

  /** A run that a pool finds at its start; given time, since nobody could renew it meanwhile. */
  recover(record: RunRecord): LiveRun {
    return this.#add(graceRun(record, this.#core.limits.recoveryGraceMs, this.#core.now()), false);
  }

  /** The same for all, after an outage. */
  grace(): void {
    const { recoveryGraceMs } = this.#core.limits;
    for (const live of this.#runs.values()) {
      this.#set(live, graceRun(live.record, recoveryGraceMs, this.#core.now()));
    }
  }

  /** Whether it has lapsed. A run that only waits and was never renewed is looked at again with its first grant. */
  lapsed(live: LiveRun): boolean {
    return hasLapsed(live.record, live.held > 0, this.#core.now());
  }

  /** The run of a sandbox. Where a new pool has no record of it, its lease time counts from now; what is ending or
   * gone belongs to a run that is over, and must not bring it back. */
  adopt(record: SandboxRecord): LiveRun {
    const { tenant, run, leaseMs, state } = record;
    if (isEnding(state) || state === "gone") return newLive(newRun(tenant, run, leaseMs, 0));
    return this.get(tenant, run) ?? this.touch(tenant, run, leaseMs);
  }

  /** Forgets a run of which nothing is left, once its lease is over. */
  dropIfEmpty(live: LiveRun): void {
    if (live.sandboxes.size > 0 || live.waiting.size > 0) return;
    if (live.record.expiresAt <= this.#core.now()) this.drop(live);
  }

  /** The run is over, released or lapsed; what is left of it is ending. An acquire of its name begins a new one. */
  drop(live: LiveRun): void {
    const { tenant, run } = live.record;
    const key = runKey(tenant, run);
    if (this.#runs.get(key) !== live) return;
    this.#runs.delete(key);
    this.#core.deadlines.clear(DEADLINE + key);
    this.#core.store.forgetRun(tenant, run).catch(() => {});
  }

  #add(record: RunRecord, write: boolean): LiveRun {
    const live = newLive(record);
    this.#runs.set(runKey(record.tenant, record.run), live);
    this.arm(live);
    if (write) this.#write(record);
    return live;
  }

  #set(live: LiveRun, record: RunRecord): Promise<void> {
    if (record === live.record) return Promise.resolve();
    live.record = record;
    live.writtenExpiresAt = record.expiresAt;
    this.arm(live);
    return this.#write(record);
  }

  /** Looks at it again when its lease is over. */
  arm({ record }: LiveRun): void {
    this.#core.deadlines.set(DEADLINE + runKey(record.tenant, record.run), record.expiresAt);
  }

  #write(record: RunRecord): Promise<void> {
    const stored = this.#core.store.putRun(record);
    // Whoever waits sees the rejection; the store itself tells the pool that it can write no more.
    stored.catch(() => {});
    return stored;
  }
}
