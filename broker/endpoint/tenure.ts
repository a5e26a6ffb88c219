// Whose sandbox this is, by the pool's words: welcome, grant, renew, release, credential; and the dead man's switch.
import {
  CONTROL_VERBS,
  type ControlVerb,
  check,
  decode,
  type LeaseLostError,
  type SandmeshError,
} from "../contract/index.ts";
import { Alarm } from "./alarm.ts";
import { type Context, errorOf } from "./context.ts";
import { type Fenced, judge, lost, type Tenure as TenureState } from "./fence.ts";

/** How long a request that knows a newer grant than the daemon waits for the pool's word of it. */
const GRANT_WAIT_MS = 2_000;
/** Requests that wait so, at most. */
const MAX_WAITING = 1024;

export interface TenureEvents {
  /** The pool knows this daemon. */
  heard(): void;
  released(reason: string): void;
  /** No word came for the time that the pool said. */
  deadMan(): void;
  credential(jwt: string): void;
}

interface Waiting {
  request: Fenced;
  mayHaveRun: boolean;
  run(): void;
  refuse(error: SandmeshError): void;
  alarm: Alarm;
}

const isControlVerb = (verb: string): verb is ControlVerb => Object.hasOwn(CONTROL_VERBS, verb);

export class Tenure implements TenureState {
  generation: number;
  lease: string | undefined;
  readonly incarnation: string;
  readonly #context: Context;
  readonly #events: TenureEvents;
  readonly #waiting = new Set<Waiting>();
  readonly #deadMan = new Alarm(() => this.#events.deadMan());

  constructor(context: Context, generation: number, events: TenureEvents) {
    this.#context = context;
    this.#events = events;
    this.generation = generation;
    this.incarnation = context.incarnation;
  }

  /** `run` is called now, or when the grant that the request knows of has arrived. */
  admit(request: Fenced, mayHaveRun: boolean, run: () => void, refuse: (error: SandmeshError) => void): void {
    const verdict = judge(request, this, this.#context.sandbox, mayHaveRun);
    if (verdict === "pass") run();
    else if (verdict !== "wait") refuse(verdict);
    else if (this.#waiting.size >= MAX_WAITING) refuse(this.#unknownGrant());
    else this.#wait(request, mayHaveRun, run, refuse);
  }

  #wait(request: Fenced, mayHaveRun: boolean, run: () => void, refuse: (error: SandmeshError) => void): void {
    const alarm = new Alarm(() => {
      this.#waiting.delete(waiting);
      refuse(this.#unknownGrant());
    });
    const waiting: Waiting = { request, mayHaveRun, run, refuse, alarm };
    this.#waiting.add(waiting);
    this.#context.deadlines.set(alarm, GRANT_WAIT_MS);
  }

  #unknownGrant(): LeaseLostError {
    return lost("the daemon has not heard of this grant", this.#context.sandbox);
  }

  /** Sets the dead man's time anew, from now. */
  keepAlive(deadManMs: number): void {
    this.#context.deadlines.set(this.#deadMan, deadManMs);
  }

  /** One word of the pool. What is malformed or old is logged and does nothing. */
  word(verb: string, body: Uint8Array): void {
    const { log, sandbox } = this.#context;
    if (!isControlVerb(verb)) {
      log.warn({ sandbox, verb }, "a word of the pool that this daemon does not know");
      return;
    }
    try {
      this.#take(verb, decode(body));
    } catch (thrown) {
      const error = errorOf(thrown, verb);
      log.warn({ sandbox, verb, code: error.code, error: error.message }, "a malformed word of the pool");
    }
  }

  #take(verb: ControlVerb, body: Record<string, unknown>): void {
    const { generation } = check(CONTROL_VERBS[verb], body);
    if (generation < this.generation) {
      const { log, sandbox } = this.#context;
      log.warn({ sandbox, verb, generation, current: this.generation }, "a word of an older generation");
      return;
    }
    switch (verb) {
      case "welcome":
      case "renew":
        this.keepAlive(check(CONTROL_VERBS[verb], body).dead_man_ms);
        if (verb === "welcome") this.#events.heard();
        return;
      case "grant":
        this.#grant(check(CONTROL_VERBS.grant, body));
        return;
      case "release":
        this.#events.released(check(CONTROL_VERBS.release, body).reason);
        return;
      case "credential":
        this.#events.credential(check(CONTROL_VERBS.credential, body).jwt);
        return;
    }
  }

  #grant(grant: { lease: string; generation: number; dead_man_ms: number }): void {
    if (grant.generation === this.generation && this.lease !== undefined && this.lease !== grant.lease) {
      const { log, sandbox } = this.#context;
      log.error({ sandbox, generation: grant.generation }, "two leases with one generation; the first stays");
      return;
    }
    this.generation = grant.generation;
    this.lease = grant.lease;
    this.keepAlive(grant.dead_man_ms);
    this.#events.heard();
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const each of waiting) {
      this.#context.deadlines.clear(each.alarm);
      this.admit(each.request, each.mayHaveRun, each.run, each.refuse);
    }
  }
}
