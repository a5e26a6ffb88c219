// What one mesh connection holds: its runs with their sandboxes, renewed while there are any, and told of losses.
import { fromWire, type Grant, LeaseLostError, SandboxLostError } from "../../broker/contract/index.ts";
import type { Holdings } from "./releases.ts";
import { DEAD_MAN_MS, type Loss } from "./renew/protocol.ts";
import type { Renewer } from "./renew/renewer.ts";
import { type Caller, seconds } from "./wire/caller.ts";
import { Lifeline } from "./wire/lifeline.ts";
import { hearLosses } from "./wire/news.ts";

export interface Held {
  sandbox: string;
  lease: string;
  lifeline: Lifeline;
  /** Milliseconds since the epoch. */
  heldSince: number;
}

/** What the pool keeps for us, and for how long without us. */
export interface Kept {
  sandbox: string;
  leaseMs: number;
}

class RunState {
  readonly run: string;
  leaseMs: number;
  acquiring = 0;
  readonly held = new Map<string, Held>();
  /** Lost before its grant was here: the event overtook it. */
  readonly early = new Map<string, string>();
  unhear: () => void = () => undefined;

  constructor(run: string, leaseMs: number) {
    this.run = run;
    this.leaseMs = leaseMs;
  }
}

export class Tenure {
  readonly #caller: Caller;
  readonly #renewer: Renewer;
  readonly #runs = new Map<string, RunState>();
  /** Runs that end as a whole when we do. */
  readonly #owned = new Set<string>();
  /** Ids of acquires of which the pool may have something that is not held here: asked for, or being taken back. */
  readonly open = new Set<string>();
  /** By its lease, what is being released, or was to be and is not known to be gone. */
  readonly #releasing = new Map<string, Kept>();

  constructor(caller: Caller, renewer: Renewer) {
    this.#caller = caller;
    this.#renewer = renewer;
  }

  own(run: string): void {
    this.#owned.add(run);
  }

  /** An acquire begins: from now on the run is renewed and its losses are heard. */
  enter(run: string, leaseMs: number): void {
    const state = this.#runs.get(run) ?? this.#begin(run, leaseMs);
    state.acquiring += 1;
    state.leaseMs = leaseMs;
    this.#renewer.keep(run, leaseMs);
  }

  #begin(run: string, leaseMs: number): RunState {
    const state = new RunState(run, leaseMs);
    this.#runs.set(run, state);
    state.unhear = hearLosses(
      this.#caller,
      run,
      (...loss) => this.#happened(run, ...loss),
      () => [...state.held.keys()],
    );
    return state;
  }

  /** The acquire ended, with a grant or without. */
  leave(run: string, grant: Grant | undefined): Lifeline {
    const state = this.#runs.get(run);
    const lifeline = new Lifeline();
    if (state === undefined) return lifeline;
    state.acquiring -= 1;
    if (grant !== undefined) {
      const { sandbox, lease } = grant;
      this.open.delete(lease);
      state.held.set(sandbox, { sandbox, lease, lifeline, heldSince: Date.now() });
      const early = state.early.get(sandbox);
      if (early !== undefined) this.#lose(state, sandbox, early);
    }
    if (state.acquiring === 0) state.early.clear();
    this.#settle(state);
    return lifeline;
  }

  /** It is to outlive us, and so is its run: what else we hold of that is released by lease, and no more as a whole. */
  detach(run: string, sandbox: string): void {
    this.#owned.delete(run);
    const state = this.#runs.get(run);
    if (state?.held.delete(sandbox)) this.#settle(state);
  }

  /** Not ours to use any more: one sandbox that a run holds, or all. It counts among the holdings until it is known to
   * be gone. */
  beginRelease(run: string, sandbox?: string): Held[] {
    const state = this.#runs.get(run);
    if (state === undefined) return [];
    const found = sandbox === undefined ? [...state.held.values()] : [state.held.get(sandbox)];
    const ending = found.filter((held) => held !== undefined);
    for (const each of ending) {
      this.#releasing.set(each.lease, { sandbox: each.sandbox, leaseMs: state.leaseMs });
      state.held.delete(each.sandbox);
    }
    this.#settle(state);
    return ending;
  }

  /** It is known to be gone. */
  released({ lease }: Held): void {
    this.#releasing.delete(lease);
  }

  /** What must be released for nothing to be left: runs of our own as a whole, of others what we acquired; and by its id
   * each acquire that is under way, also in a run of our own, whose release may overtake it. */
  get holdings(): Holdings {
    const states = [...this.#runs.values()].filter((state) => state.held.size > 0 || state.acquiring > 0);
    const whole = states.filter((state) => this.#owned.has(state.run));
    const part = states.filter((state) => !this.#owned.has(state.run));
    return {
      runs: whole.map((state) => state.run),
      leases: [
        ...part.flatMap((state) => [...state.held.values()].map((held) => held.lease)),
        ...this.open,
        ...this.#releasing.keys(),
      ],
    };
  }

  /** What is held, or not known to be gone, at this moment. */
  get sandboxes(): Kept[] {
    const held = [...this.#runs.values()].flatMap(({ held, leaseMs }) =>
      [...held.keys()].map((sandbox) => ({ sandbox, leaseMs })),
    );
    return [...held, ...this.#releasing.values()];
  }

  /** What who renews tells. */
  told(message: Loss): void {
    if (message.type === "refused") this.#refused(message);
    else this.#lapsed(message);
  }

  /** Still held, so that closing releases what may have lived on after all. */
  #lapsed({ run, renewedAt, leaseMs }: Loss & { type: "lapsed" }): void {
    for (const { sandbox, heldSince, lifeline } of this.#runs.get(run)?.held.values() ?? []) {
      const unrenewedMs = Date.now() - Math.max(renewedAt, heldSince);
      if (unrenewedMs < leaseMs + DEAD_MAN_MS) continue;
      const message = `sandbox ${sandbox} is lost: its lease of ${seconds(leaseMs)} could not be renewed for ${seconds(unrenewedMs)}, with the server away`;
      lifeline.fail(new SandboxLostError(message, { sandbox, reason: "expired" }));
    }
  }

  /** A renewal was refused: what was ours when it was sent is lost. What came later proves the run alive. */
  #refused({ run, askedAt, error }: Loss & { type: "refused" }): void {
    const state = this.#runs.get(run);
    if (state === undefined) return;
    const cause = fromWire(error);
    for (const held of [...state.held.values()]) {
      if (held.heldSince >= askedAt) continue;
      state.held.delete(held.sandbox);
      held.lifeline.fail(
        new LeaseLostError(`the lease of run ${run} is lost: ${cause.message}`, {
          sandbox: held.sandbox,
          cause,
        }),
      );
    }
    this.#settle(state);
  }

  close(): void {
    for (const state of this.#runs.values()) state.unhear();
    this.#runs.clear();
  }

  #happened(run: string, sandbox: string, reason: string): void {
    const state = this.#runs.get(run);
    if (state === undefined) return;
    if (state.held.has(sandbox)) this.#lose(state, sandbox, reason);
    else if (state.acquiring > 0) state.early.set(sandbox, reason);
  }

  #lose(state: RunState, sandbox: string, reason: string): void {
    const held = state.held.get(sandbox);
    state.held.delete(sandbox);
    held?.lifeline.fail(
      new SandboxLostError(`sandbox ${sandbox} is not there any more (${reason})`, { sandbox, reason }),
    );
    this.#settle(state);
  }

  /** A run of which we hold nothing is not renewed. */
  #settle(state: RunState): void {
    if (state.acquiring > 0 || state.held.size > 0) return;
    if (this.#runs.get(state.run) !== state) return;
    this.#runs.delete(state.run);
    this.#renewer.drop(state.run);
    state.unhear();
  }
}
