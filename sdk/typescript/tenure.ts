// What one mesh connection holds: its runs with their sandboxes, renewed while there are any, and told of losses.
import {
  check,
  decode,
  fromWire,
  type Grant,
  LeaseLostError,
  PoolEvent,
  runEventSubject,
  SandboxLostError,
} from "../../broker/contract/index.ts";
import type { Subscription } from "../../broker/link/link.ts";
import type { FromKeeper, ReleaseOrder } from "./renew/protocol.ts";
import type { Renewer } from "./renew/renewer.ts";
import type { Caller } from "./wire/caller.ts";
import { Lifeline } from "./wire/lifeline.ts";

export interface Held {
  sandbox: string;
  lease: string;
  lifeline: Lifeline;
  /** Milliseconds since the epoch. */
  heldSince: number;
}

const LOSSES = ["lost", "expired", "released", "failed"] as const;

class RunState {
  readonly run: string;
  leaseMs: number;
  acquiring = 0;
  readonly held = new Map<string, Held>();
  /** Lost before its grant was here: the event overtook it. */
  readonly early = new Map<string, string>();
  subscriptions: Subscription[] = [];

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

  constructor(caller: Caller, renewer: Renewer) {
    this.#caller = caller;
    this.#renewer = renewer;
  }

  own(run: string): void {
    this.#owned.add(run);
  }

  /** An acquire begins: from now on the run is renewed and its losses are heard. */
  enter(run: string, leaseMs: number): void {
    let state = this.#runs.get(run);
    if (state === undefined) {
      state = new RunState(run, leaseMs);
      this.#runs.set(run, state);
      const { link } = this.#caller;
      for (const what of LOSSES) {
        const subject = runEventSubject(link.tenant, run, what);
        state.subscriptions.push(link.subscribe(subject, (message) => this.#happened(run, message.data)));
      }
    }
    state.acquiring += 1;
    state.leaseMs = leaseMs;
    this.#renewer.keep(run, leaseMs);
  }

  /** The acquire ended, with a grant or without. */
  leave(run: string, grant: Grant | undefined): Lifeline {
    const state = this.#runs.get(run);
    const lifeline = new Lifeline();
    if (state === undefined) return lifeline;
    state.acquiring -= 1;
    if (grant !== undefined) {
      const { sandbox, lease } = grant;
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
    this.forget(run, sandbox);
  }

  /** Not ours any more: released, detached or lost. */
  forget(run: string, sandbox: string): Held | undefined {
    const state = this.#runs.get(run);
    const held = state?.held.get(sandbox);
    if (state === undefined || held === undefined) return undefined;
    state.held.delete(sandbox);
    this.#settle(state);
    return held;
  }

  /** All that a run holds; it is empty then. */
  forgetRun(run: string): Held[] {
    const state = this.#runs.get(run);
    if (state === undefined) return [];
    const held = [...state.held.values()];
    state.held.clear();
    this.#settle(state);
    return held;
  }

  /** What must be released for nothing to be left: runs of our own as a whole, of others what we acquired. */
  get holdings(): Omit<ReleaseOrder, "timeoutMs"> {
    const states = [...this.#runs.values()].filter((state) => state.held.size > 0 || state.acquiring > 0);
    const whole = states.filter((state) => this.#owned.has(state.run));
    const part = states.filter((state) => !this.#owned.has(state.run));
    return {
      runs: whole.map((state) => state.run),
      leases: part.flatMap((state) => [...state.held.values()].map((held) => held.lease)),
    };
  }

  /** What is held at this moment. */
  get sandboxes(): { sandbox: string; leaseMs: number }[] {
    return [...this.#runs.values()].flatMap(({ held, leaseMs }) =>
      [...held.keys()].map((sandbox) => ({ sandbox, leaseMs })),
    );
  }

  /** A renewal was refused: what was ours when it was sent is lost. What came later proves the run alive. */
  refused({ run, askedAt, error }: FromKeeper): void {
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
    for (const state of this.#runs.values()) {
      for (const subscription of state.subscriptions) subscription.unsubscribe();
    }
    this.#runs.clear();
  }

  #happened(run: string, body: Uint8Array): void {
    const event = check(PoolEvent, decode(body));
    const state = this.#runs.get(run);
    if (state === undefined || event.sandbox === undefined) return;
    const reason = event.reason ?? event.what;
    if (state.held.has(event.sandbox)) this.#lose(state, event.sandbox, reason);
    else if (state.acquiring > 0) state.early.set(event.sandbox, reason);
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
    if (this.#caller.closed !== undefined) return;
    for (const subscription of state.subscriptions) subscription.unsubscribe();
  }
}
