// Takes the users' requests apart, and sees to it that each gets an answer and none brings the pool down.
import {
  check,
  DrainingError,
  DrainRequest,
  decode,
  encodingOf,
  PermissionDeniedError,
  POOL_RESPONDER,
  POOL_VERBS,
  type PoolVerb,
  parseSubject,
  toSandmeshError,
  UnknownVerbError,
  UnreachableError,
} from "../../broker/contract/index.ts";
import type { Message } from "../../broker/link/link.ts";
import { GUARD_SUBJECT } from "../../broker/server/permissions.ts";
import type { ReplyTo } from "../lifecycle/record.ts";
import type { Acquires } from "./acquire.ts";
import { type Core, refuse, respond, respondError } from "./core.ts";
import { type Leases, RELEASED } from "./leases.ts";
import type { Sandboxes } from "./sandboxes.ts";
import type { Views } from "./views.ts";

/** How long the server has for one round trip. */
const GUARD_MS = 5_000;

/** Who asks, and what. The server sees to the tenant. The user is what the reply subject says, which it does not look at: never
 * to be believed where that would give a right. */
interface Asked {
  tenant: string;
  user: string;
  reply: ReplyTo;
  body: Uint8Array;
}

/** Some 100 bytes each. */
const MAX_HEARD = 10_000;

export class Requests {
  readonly #core: Core;
  readonly #sandboxes: Sandboxes;
  readonly #acquires: Acquires;
  /** Tenants that asked something since the pool's start, so that whoever only watches hears of a drain. */
  readonly #heard = new Set<string>();
  readonly #verbs: Record<PoolVerb, (asked: Asked) => void | Promise<void>>;

  constructor(core: Core, sandboxes: Sandboxes, acquires: Acquires, leases: Leases, views: Views) {
    this.#core = core;
    this.#sandboxes = sandboxes;
    this.#acquires = acquires;
    this.#verbs = {
      acquire: ({ tenant, user, reply, body }) => acquires.acquire(tenant, user, reply, body),
      confirm: ({ tenant, reply, body }) => leases.confirm(tenant, reply, body),
      renew: ({ tenant, reply, body }) => leases.renew(tenant, reply, body),
      release: ({ tenant, reply, body }) => leases.release(tenant, reply, body),
      list: ({ tenant, reply, body }) => views.list(tenant, reply, body),
      status: ({ reply, body }) => views.status(reply, body),
      drain: (asked) => this.#drain(asked),
    };
    // Whoever waits is told, and not left to a deadline that says nothing. What they began goes on when there is room; a
    // grant that nobody confirms is taken back.
    core.store.onTrouble((error) => {
      core.log.error({ error: error.message }, "the records cannot be written");
      for (const reply of [...core.unanswered.values()]) respondError(core, reply, error);
    });
  }

  /** `pool.v1.<tenant>.<verb>`. A request that wants its answer anywhere but at a user of its tenant's is dropped. */
  handle(message: Message): void {
    const subject = parseSubject(message.subject);
    const to = message.reply === undefined ? undefined : parseSubject(message.reply);
    if (subject?.kind !== "pool" || message.reply === undefined) return;
    const { tenant } = subject;
    if (to?.kind !== "reply" || to.tenant !== tenant || to.responder !== POOL_RESPONDER) {
      this.#core.counters.refusedReplies++;
      this.#core.log.warn({ subject: message.subject, reply: message.reply }, "a reply subject was refused");
      return;
    }
    const reply: ReplyTo = { subject: message.reply, encoding: encodingOf(message.data) };
    const fail = (thrown: unknown): void => {
      const error = toSandmeshError(thrown);
      if (error.code === "internal")
        this.#core.log.error({ verb: subject.verb, error: error.stack }, "a fault");
      refuse(this.#core, reply, error);
    };
    if (this.#heard.size < MAX_HEARD) this.#heard.add(tenant);
    try {
      if (!isVerb(subject.verb)) throw new UnknownVerbError(`the pool has no verb ${subject.verb}`);
      if (NEEDS_RECORDS.has(subject.verb)) this.#needRecords(reply);
      const asked = { tenant, user: to.user, reply, body: message.data };
      Promise.resolve(this.#verbs[subject.verb](asked)).catch(fail);
    } catch (thrown) {
      fail(thrown);
    }
  }

  /** This answer waits for a record. Throws what keeps records from being written; what does so later is the answer. */
  #needRecords(reply: ReplyTo): void {
    if (this.#core.store.trouble !== undefined) throw this.#core.store.trouble;
    this.#core.unanswered.set(reply.subject, reply);
  }

  /** The server lets none but operators publish it (broker/server/permissions.ts). */
  async #drain({ tenant, user, reply, body }: Asked): Promise<void> {
    const { on, release_all } = check(DrainRequest, decode(body));
    await this.#keptForOperators();
    const began = on && !this.#acquires.draining;
    this.#acquires.draining = on;
    const kept = this.#core.store.putDraining(on);
    kept.catch(() => undefined);
    if (began) this.#acquires.announceDraining(this.#heard);
    this.#core.log.info({ on, release_all, tenant, user }, "drain");
    if (on && release_all) this.#releaseEverything();
    // It is so from now on; that the next pool will know of it, too, is said only when it is durable.
    this.#needRecords(reply);
    await kept;
    respond(this.#core, reply, { draining: on, remaining: this.#remaining() });
  }

  /** Throws PermissionDeniedError where the server has an account's JWT of before there were operators: whoever may use the
   * pool may publish `drain` there. */
  async #keptForOperators(): Promise<void> {
    try {
      await this.#core.link.request(POOL_RESPONDER, GUARD_SUBJECT, new Uint8Array(), { timeoutMs: GUARD_MS });
    } catch (error) {
      // Nobody listens; what counts is that it may be asked.
      if (error instanceof UnreachableError) return;
      if (!(error instanceof PermissionDeniedError)) throw error;
      throw new PermissionDeniedError(
        "NATS does not keep this for operators yet: its accounts are of before there were any; give it those that this version makes (on Kubernetes: apply what `sandmesh kubernetes credentials` prints, and reload NATS)",
        { reason: "accounts", cause: error },
      );
    }
  }

  #releaseEverything(): void {
    this.#acquires.cancelAll(new DrainingError("the pool is being emptied"));
    for (const live of [...this.#sandboxes.all()]) {
      this.#sandboxes.apply(live, RELEASED);
    }
  }

  #remaining(): number {
    const { gone, ...states } = this.#core.counters.states;
    return Object.values(states).reduce((sum, count) => sum + count, 0);
  }
}

/** What they answer must be durable first. */
const NEEDS_RECORDS: ReadonlySet<PoolVerb> = new Set(["acquire", "confirm", "renew", "release"]);

const isVerb = (verb: string): verb is PoolVerb => Object.hasOwn(POOL_VERBS, verb);
