// Confirm, renew and release: what callers say about what they hold.
import {
  CanceledError,
  ConfirmRequest,
  LeaseLostError,
  NotFoundError,
  ProviderError,
  parse,
  ReleaseRequest,
  RenewRequest,
  type SandmeshError,
} from "../../broker/contract/index.ts";
import { isEnding, isHeld, type ReplyTo } from "../lifecycle/record.ts";
import type { Acquires } from "./acquire.ts";
import { type Core, ifCurrent, respond, respondError } from "./core.ts";
import type { Effects } from "./effects.ts";
import type { LiveRun, Runs } from "./runs.ts";
import type { Live, Sandboxes } from "./sandboxes.ts";

const DEADLINE = "release:";
const RELEASED = { type: "end", reason: "released", event: "released" } as const;

export class Leases {
  readonly #core: Core;
  readonly #sandboxes: Sandboxes;
  readonly #runs: Runs;
  readonly #acquires: Acquires;
  readonly #effects: Effects;
  /** Releases that wait for the removal: what to do when that takes too long. */
  readonly #releases = new Map<string, () => void>();
  #count = 0;

  constructor(core: Core, sandboxes: Sandboxes, runs: Runs, acquires: Acquires, effects: Effects) {
    this.#core = core;
    this.#sandboxes = sandboxes;
    this.#runs = runs;
    this.#acquires = acquires;
    this.#effects = effects;
  }

  confirm(tenant: string, reply: ReplyTo, body: Uint8Array): void {
    const { sandbox, generation } = parse(ConfirmRequest, body);
    const live = this.#sandboxes.get(sandbox, tenant);
    if (live === undefined) throw new NotFoundError(`no sandbox ${sandbox}`, { sandbox });
    const { confirmBy = 0 } = live.record;
    this.#sandboxes.apply(live, { type: "confirm", generation, reply });
    // From now on its lease counts for the daemon, and not the longer time that a caller has to confirm.
    if (live.record.state === "leased" && confirmBy > live.run.record.expiresAt) this.#effects.renew(live);
  }

  renew(tenant: string, reply: ReplyTo, body: Uint8Array): void {
    const { run, lease_ms } = parse(RenewRequest, body);
    const live = this.#runs.get(tenant, run);
    if (live === undefined) throw new NotFoundError(`no run ${run}: its lease has lapsed, or it never was`);
    const stored = this.#runs.renew(live, lease_ms);
    // Not before it is durable: a renewal that a crash forgets would be a promise broken.
    stored.then(
      () => {
        const held = this.#passOn(live);
        respond(this.#core, reply, { run, lease_ms: live.record.leaseMs, sandboxes: held });
      },
      () => {},
    );
  }

  /** To each daemon of the run: its dead man's time anew. */
  #passOn(run: LiveRun): number {
    let held = 0;
    for (const id of run.sandboxes) {
      const live = this.#sandboxes.get(id);
      if (live === undefined || !isHeld(live.record.state)) continue;
      held++;
      this.#effects.renew(live);
    }
    return held;
  }

  release(tenant: string, reply: ReplyTo, body: Uint8Array): void {
    const { sandbox, lease, run, generation, wait } = parse(ReleaseRequest, body);
    if (run !== undefined) {
      this.#releaseRun(tenant, run, reply, wait);
      return;
    }
    if (lease !== undefined && this.#acquires.cancel(tenant, lease)) {
      respond(this.#core, reply, { released: 0 });
      return;
    }
    const live =
      sandbox === undefined
        ? this.#sandboxes.byLease(tenant, lease ?? "")
        : this.#sandboxes.get(sandbox, tenant);
    if (live === undefined) {
      if (lease !== undefined) this.#acquires.forbid(tenant, lease);
      ifCurrent(this.#core, () => respond(this.#core, reply, { released: 0, known: 0 }));
      return;
    }
    const { generation: current } = live.record;
    if (generation !== undefined && current !== generation) {
      throw new LeaseLostError(`the sandbox has generation ${current} by now, not ${generation}`, {
        sandbox: live.record.sandbox,
      });
    }
    this.#releaseAll([live], reply, wait);
  }

  #releaseRun(tenant: string, name: string, reply: ReplyTo, wait: boolean): void {
    // By name, so that a release that is sent again waits for what the first one ended.
    const all = this.#ofRun(tenant, name);
    const run = this.#runs.get(tenant, name);
    if (run !== undefined) {
      this.#cancelWaiting(run, new CanceledError(`run ${name} was released`));
      this.#runs.drop(run);
    }
    this.#releaseAll(all, reply, wait);
  }

  /** All that are not gone. */
  #ofRun(tenant: string, name: string): Live[] {
    const all: Live[] = [];
    for (const id of this.#sandboxes.ofTenant(tenant)) {
      const live = this.#sandboxes.get(id);
      if (live?.record.run === name) all.push(live);
    }
    return all;
  }

  #cancelWaiting(run: LiveRun, error: SandmeshError): void {
    for (const id of [...run.waiting]) this.#acquires.cancel(run.record.tenant, id, error);
  }

  /** Ends `all`, and answers when they are gone (or now, where `wait` is false). */
  #releaseAll(all: readonly Live[], reply: ReplyTo, wait: boolean): void {
    let released = 0;
    for (const live of all) {
      const { state, end } = live.record;
      // Who waits for a long removal asks again: that answer must not say that nothing was released.
      if (isEnding(state) && end?.reason === RELEASED.reason) released++;
      if (isEnding(state) || state === "gone") continue;
      released++;
      this.#sandboxes.apply(live, RELEASED);
    }
    const key = `${DEADLINE}${++this.#count}`;
    let left = all.length;
    const finish = (): void => {
      if (wait && this.#releases.delete(key)) {
        this.#core.deadlines.clear(key);
        respond(this.#core, reply, { released, known: all.length });
      }
    };
    if (wait) {
      this.#releases.set(key, () => {
        const error = `${left} of ${all.length} sandboxes are not verified gone yet; the pool goes on removing them`;
        respondError(this.#core, reply, new ProviderError(error));
      });
      this.#core.deadlines.set(key, this.#core.now() + this.#core.limits.releaseAnswerMs);
    }
    if (left === 0) finish();
    for (const live of all) {
      this.#sandboxes.whenGone(live, () => {
        if (--left === 0) finish();
      });
    }
    if (!wait) this.#whenTaken(all, reply, released);
  }

  /** The duty is the pool's once it is written. */
  #whenTaken(all: readonly Live[], reply: ReplyTo, released: number): void {
    void Promise.all(all.map((live) => live.tail)).then(() =>
      respond(this.#core, reply, { released, known: all.length }),
    );
  }

  /** A run's lease is over: all that it has, and all that it waits for. */
  lapse(run: LiveRun): void {
    if (!this.#runs.lapsed(run)) {
      this.#goOn(run);
      return;
    }
    const { tenant, run: name } = run.record;
    this.#core.log.info({ tenant, run: name, sandboxes: run.sandboxes.size }, "the run's lease has lapsed");
    this.#cancelWaiting(run, new CanceledError("the run's lease has lapsed", { reason: "expired" }));
    for (const live of this.#ofRun(tenant, name)) {
      this.#sandboxes.apply(live, { type: "end", reason: "expired", event: "expired" });
    }
    this.#runs.drop(run);
  }

  /** Grants or acquires have put its end off meanwhile, or nobody holds anything yet. */
  #goOn(run: LiveRun): void {
    if (run.record.expiresAt > this.#core.now()) {
      this.#passOn(run);
      this.#runs.arm(run);
    } else this.#runs.dropIfEmpty(run);
  }

  /** A deadline of this part has passed; false where `key` is none of its. */
  deadline(key: string): boolean {
    if (!key.startsWith(DEADLINE)) return false;
    const late = this.#releases.get(key);
    this.#releases.delete(key);
    late?.();
    return true;
  }
}
