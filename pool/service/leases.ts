// Confirm, renew and release: what callers say about what they hold.
import {
  CanceledError,
  ConfirmRequest,
  ConflictError,
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
export const RELEASED = { type: "end", reason: "released", event: "released" } as const;

/** More than come while one that is asked again may be waited for (5 s after the first); 2 MB. */
const MAX_ASKED = 10_000;

type Release = ReturnType<typeof parse<typeof ReleaseRequest>>;

/** A release that was asked for. */
interface Asked {
  /** What is not known to be gone. */
  all: readonly Live[];
  readonly answer: { released: number; known?: number };
}

/** What a release names: under its id it may be asked for again, with another `wait`, too. */
const namedBy = ({ sandbox, lease, run, generation }: Release): string =>
  JSON.stringify({ sandbox, lease, run, generation });

export class Leases {
  readonly #core: Core;
  readonly #sandboxes: Sandboxes;
  readonly #runs: Runs;
  readonly #acquires: Acquires;
  readonly #effects: Effects;
  /** Releases that wait for the removal: what to do when that takes too long. */
  readonly #releases = new Map<string, () => void>();
  #count = 0;
  /** By the id of the release, with what it names; oldest first. */
  readonly #asked = new Map<string, { named: string; asked: Asked }>();

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
    const request = parse(ReleaseRequest, body);
    const { id, wait } = request;
    const key = id === undefined ? undefined : `${tenant}/${id}`;
    const earlier = key === undefined ? undefined : this.#asked.get(key);
    // The answer to the other one would say that this one's sandboxes are gone.
    if (earlier !== undefined && earlier.named !== namedBy(request))
      throw new ConflictError(`the release ${id} was asked for before, of something else`, { field: "id" });
    const asked = earlier?.asked ?? this.#begin(tenant, request);
    if (asked === undefined) {
      ifCurrent(this.#core, () => respond(this.#core, reply, { released: 0, known: 0 }));
      return;
    }
    if (key !== undefined && earlier === undefined) this.#remember(key, namedBy(request), asked);
    this.#answer(asked, reply, wait);
  }

  /** Ends what a release names; undefined where there is no such thing. */
  #begin(tenant: string, { sandbox, lease, run, generation }: Release): Asked | undefined {
    if (run !== undefined) return this.#releaseRun(tenant, run);
    if (lease !== undefined && this.#acquires.cancel(tenant, lease))
      return { all: [], answer: { released: 0 } };
    const live =
      sandbox === undefined
        ? this.#sandboxes.byLease(tenant, lease ?? "")
        : this.#sandboxes.get(sandbox, tenant);
    if (live === undefined) {
      if (lease !== undefined) this.#acquires.forbid(tenant, lease);
      return undefined;
    }
    const { generation: current } = live.record;
    if (generation !== undefined && current !== generation) {
      throw new LeaseLostError(`the sandbox has generation ${current} by now, not ${generation}`, {
        sandbox: live.record.sandbox,
      });
    }
    return this.#releaseAll([live]);
  }

  #remember(key: string, named: string, asked: Asked): void {
    this.#asked.set(key, { named, asked });
    for (const oldest of this.#asked.keys()) {
      if (this.#asked.size <= MAX_ASKED) return;
      this.#asked.delete(oldest);
    }
  }

  #releaseRun(tenant: string, name: string): Asked {
    // By name, so that a release that is sent again waits for what the first one ended.
    const all = this.#ofRun(tenant, name);
    const run = this.#runs.get(tenant, name);
    if (run !== undefined) {
      this.#cancelWaiting(run, new CanceledError(`run ${name} was released`));
      this.#runs.drop(run);
    }
    return this.#releaseAll(all);
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

  /** Ends `all`. */
  #releaseAll(all: readonly Live[]): Asked {
    let released = 0;
    for (const live of all) {
      const { state, end } = live.record;
      // Who waits for a long removal asks again: that answer must not say that nothing was released.
      if (isEnding(state) && end?.reason === RELEASED.reason) released++;
      if (isEnding(state) || state === "gone") continue;
      released++;
      this.#sandboxes.apply(live, RELEASED);
    }
    return { all, answer: { released, known: all.length } };
  }

  /** Answers when all are gone, or now, where `wait` is false. */
  #answer(asked: Asked, reply: ReplyTo, wait: boolean): void {
    const { all, answer } = asked;
    const key = `${DEADLINE}${++this.#count}`;
    let left = all.length;
    const finish = (): void => {
      // They are not held for those who ask again.
      asked.all = [];
      if (wait && this.#releases.delete(key)) {
        this.#core.deadlines.clear(key);
        respond(this.#core, reply, answer);
      }
    };
    if (wait) {
      this.#releases.set(key, () => {
        const error = `${left} of ${all.length} sandboxes are not verified gone yet; the pool goes on removing them`;
        respondError(this.#core, reply, new ProviderError(error));
      });
      this.#core.deadlines.set(key, this.#core.now() + this.#core.limits.releaseAnswerMs);
    } else {
      // The duty is the pool's once it is written.
      const written = Promise.all(all.map((live) => live.tail));
      void written.then(() => respond(this.#core, reply, answer));
    }
    if (left === 0) finish();
    for (const live of all) {
      this.#sandboxes.whenGone(live, () => {
        if (--left === 0) finish();
      });
    }
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
