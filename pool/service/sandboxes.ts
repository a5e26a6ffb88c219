// The sandboxes there are. `apply` is the one way in which anything happens to one: it asks the state machine, keeps
// the indexes, and carries the effects out, none of them before the record is durable.
import type { State } from "../../broker/contract/index.ts";
import { dueAt } from "../lifecycle/deadline.ts";
import type { Effect, SandboxEvent } from "../lifecycle/events.ts";
import { isEnding, isHeld, isPending, type SandboxRecord } from "../lifecycle/record.ts";
import { step } from "../lifecycle/step.ts";
import type { Core } from "./core.ts";
import { measureSteps } from "./meter.ts";
import type { LiveRun, Runs } from "./runs.ts";

export interface Live {
  record: SandboxRecord;
  readonly run: LiveRun;
  /** The last write that is under way, with the effects behind it. */
  tail: Promise<void> | undefined;
  /** Ends the provider's create that is under way. */
  create: AbortController | undefined;
  /** Called once it is gone. */
  waiters: (() => void)[] | undefined;
  /** Since when it is ending, as this process saw it; ms since the epoch. */
  endedAt: number | undefined;
}

/** Carries out what the state machine decided, but for the write. `record` is as it was decided upon. */
export type CarryOut = (live: Live, record: SandboxRecord, effect: Effect) => void;

const DEADLINE = "sandbox:";
export const TOMBSTONES_DEADLINE = "tombstones";
export const leaseKey = (tenant: string, lease: string): string => `${tenant}/${lease}`;

export class Sandboxes {
  readonly #core: Core;
  readonly #runs: Runs;
  readonly #carryOut: CarryOut;
  readonly #all = new Map<string, Live>();
  readonly #byLease = new Map<string, Live>();
  readonly #byPublicKey = new Map<string, Live>();
  readonly #byTenant = new Map<string, Set<string>>();
  /** Gone, and remembered for those who ask again; oldest first. */
  readonly #tombstones = new Map<string, number>();
  #pending = 0;
  readonly #pendingOf = new Map<string, number>();
  /** Called when fewer are starting than before. */
  onRoom: () => void = () => {};

  constructor(core: Core, runs: Runs, carryOut: CarryOut) {
    this.#core = core;
    this.#runs = runs;
    this.#carryOut = carryOut;
  }

  /** How many are starting: what the pacing bounds. */
  get starting(): number {
    return this.#pending;
  }

  startingOf(tenant: string): number {
    return this.#pendingOf.get(tenant) ?? 0;
  }

  get(sandbox: string, tenant?: string): Live | undefined {
    const live = this.#all.get(sandbox);
    return tenant === undefined || live?.record.tenant === tenant ? live : undefined;
  }

  byLease(tenant: string, lease: string): Live | undefined {
    return this.#byLease.get(leaseKey(tenant, lease));
  }

  byPublicKey(publicKey: string): Live | undefined {
    return this.#byPublicKey.get(publicKey);
  }

  byDeadline(key: string): Live | undefined {
    return key.startsWith(DEADLINE) ? this.#all.get(key.slice(DEADLINE.length)) : undefined;
  }

  /** Ids of a tenant's sandboxes that are not gone, in no order. */
  ofTenant(tenant: string): ReadonlySet<string> {
    return this.#byTenant.get(tenant) ?? new Set();
  }

  tenants(): Iterable<string> {
    return this.#byTenant.keys();
  }

  all(): Iterable<Live> {
    return this.#all.values();
  }

  /** A new sandbox, or one that was found in the records; `effects` begin its life here. */
  add(record: SandboxRecord, effects: readonly Effect[]): Live {
    const run = this.#runs.adopt(record);
    const none = undefined;
    const live: Live = { record, run, tail: none, create: none, waiters: none, endedAt: none };
    this.#all.set(record.sandbox, live);
    this.#byLease.set(leaseKey(record.tenant, record.lease), live);
    this.#core.counters.states[record.state]++;
    if (record.publicKey !== undefined) this.#byPublicKey.set(record.publicKey, live);
    if (record.state === "gone") {
      this.#bury(live);
      return live;
    }
    let ofTenant = this.#byTenant.get(record.tenant);
    if (ofTenant === undefined) {
      ofTenant = new Set();
      this.#byTenant.set(record.tenant, ofTenant);
    }
    ofTenant.add(record.sandbox);
    run.sandboxes.add(record.sandbox);
    if (isPending(record.state)) this.#starting(live, 1);
    if (isHeld(record.state)) run.held++;
    this.#core.deadlines.set(DEADLINE + record.sandbox, dueAt(record));
    this.#perform(live, record, effects);
    return live;
  }

  apply(live: Live, event: SandboxEvent): void {
    const before = live.record;
    const now = this.#core.now();
    const { record, effects } = step(before, event, now, this.#core.limits);
    if (record === before && effects.length === 0) return;
    live.record = record;
    if (isEnding(record.state)) live.endedAt ??= now;
    measureSteps(before, record, now, live.endedAt, this.#core.meter);
    if (record.publicKey !== before.publicKey) {
      if (before.publicKey !== undefined) this.#byPublicKey.delete(before.publicKey);
      if (record.publicKey !== undefined) this.#byPublicKey.set(record.publicKey, live);
    }
    if (record.state !== before.state) this.#moved(live, before.state, record.state);
    const due = dueAt(record);
    if (due !== dueAt(before)) this.#core.deadlines.set(DEADLINE + record.sandbox, due);
    this.#perform(live, record, effects);
  }

  /** Calls `done` when the sandbox is gone, verified; at once where it is. */
  whenGone(live: Live, done: () => void): void {
    if (live.record.state === "gone" && live.tail === undefined) done();
    else if (live.waiters === undefined) live.waiters = [done];
    else live.waiters.push(done);
  }

  /** Effects whose write is under way; resolves when none is. */
  async settled(): Promise<void> {
    for (const live of this.#all.values()) if (live.tail !== undefined) await live.tail;
  }

  #perform(live: Live, record: SandboxRecord, effects: readonly Effect[]): void {
    const [first] = effects;
    if (first === undefined) return;
    const previous = live.tail;
    if (first.type !== "write" && previous === undefined) {
      this.#runEffects(live, record, effects);
      return;
    }
    // Sent now, so that many writes are on their way at once; what follows waits for this and all earlier ones.
    const stored = first.type === "write" ? this.#write(record) : undefined;
    const tail = this.#after(previous, stored, live, record, effects).finally(() => {
      if (live.tail === tail) live.tail = undefined;
    });
    live.tail = tail;
  }

  /** What is gone is forgotten by the records themselves: thousands that ended together cost no burst of deletes. */
  #write(record: SandboxRecord): Promise<void> {
    const { store, limits } = this.#core;
    return record.state === "gone" ? store.putSandbox(record, limits.tombstoneMs) : store.putSandbox(record);
  }

  async #after(
    previous: Promise<void> | undefined,
    stored: Promise<void> | undefined,
    live: Live,
    record: SandboxRecord,
    effects: readonly Effect[],
  ): Promise<void> {
    try {
      if (previous !== undefined) await previous;
      await stored;
    } catch {
      // Not durable, so nothing may follow; the store tells the pool that it can write no more.
      return;
    }
    this.#runEffects(live, record, effects);
  }

  #runEffects(live: Live, record: SandboxRecord, effects: readonly Effect[]): void {
    for (const effect of effects) {
      if (effect.type === "write") continue;
      try {
        if (effect.type === "gone") this.#gone(live);
        else this.#carryOut(live, record, effect);
      } catch (error) {
        this.#core.log.error(
          { sandbox: record.sandbox, effect: effect.type, error: String(error) },
          "effect failed",
        );
      }
    }
  }

  #moved(live: Live, from: State, to: State): void {
    const { states } = this.#core.counters;
    states[from]--;
    states[to]++;
    if (isHeld(to) && !isHeld(from)) {
      live.run.held++;
      // The lease counts from the grant, however long it took to come.
      this.#runs.extend(live.run, live.record.leaseMs);
    }
    if (isHeld(from) && !isHeld(to)) live.run.held--;
    if (isPending(from) && !isPending(to)) {
      this.#starting(live, -1);
      this.onRoom();
    }
    if (to === "gone") this.#leave(live);
    else if (from === "gone") this.#enter(live);
  }

  #starting({ run, record: { tenant } }: Live, more: number): void {
    this.#pending += more;
    run.starting += more;
    const ofTenant = this.startingOf(tenant) + more;
    if (ofTenant === 0) this.#pendingOf.delete(tenant);
    else this.#pendingOf.set(tenant, ofTenant);
  }

  #leave(live: Live): void {
    const { sandbox, tenant } = live.record;
    live.run.sandboxes.delete(sandbox);
    const ofTenant = this.#byTenant.get(tenant);
    ofTenant?.delete(sandbox);
    if (ofTenant?.size === 0) this.#byTenant.delete(tenant);
    this.#runs.dropIfEmpty(live.run);
  }

  /** Something of it appeared after it was gone, so that it counts again until that is removed. */
  #enter(live: Live): void {
    const { sandbox, tenant } = live.record;
    this.#tombstones.delete(sandbox);
    const ofTenant = this.#byTenant.get(tenant) ?? new Set();
    ofTenant.add(sandbox);
    this.#byTenant.set(tenant, ofTenant);
    live.run.sandboxes.add(sandbox);
  }

  #gone(live: Live): void {
    for (const done of live.waiters ?? []) done();
    live.waiters = undefined;
    this.#bury(live);
  }

  #bury(live: Live): void {
    const { sandbox } = live.record;
    this.#tombstones.set(sandbox, this.#core.now() + this.#core.limits.tombstoneMs);
    this.#armTombstones();
    for (const oldest of this.#tombstones.keys()) {
      if (this.#tombstones.size <= this.#core.limits.maxTombstones) break;
      const early = this.#forget(oldest);
      if (early !== undefined) this.#core.store.forgetSandbox(early.record).catch(() => {});
    }
  }

  /** All tombstones live equally long, so that the oldest is the first to go: one deadline for all. */
  sweepTombstones(): void {
    const now = this.#core.now();
    for (const [sandbox, until] of this.#tombstones) {
      if (until > now) break;
      this.#forget(sandbox);
    }
    this.#armTombstones();
  }

  #armTombstones(): void {
    for (const until of this.#tombstones.values()) {
      this.#core.deadlines.set(TOMBSTONES_DEADLINE, until);
      return;
    }
  }

  /** The memory of a sandbox's end goes. */
  #forget(sandbox: string): Live | undefined {
    this.#tombstones.delete(sandbox);
    const live = this.#all.get(sandbox);
    if (live === undefined) return undefined;
    this.#all.delete(sandbox);
    const key = leaseKey(live.record.tenant, live.record.lease);
    if (this.#byLease.get(key) === live) this.#byLease.delete(key);
    this.#core.counters.states.gone--;
    return live;
  }
}
