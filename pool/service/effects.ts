// Carries out the effects of the state machine: calls the provider, speaks to daemons, answers callers, tells
// listeners.
import {
  assertNever,
  type Bootstrap,
  controlSubject,
  encode,
  ProviderError,
  runEventSubject,
  toSandmeshError,
} from "../../broker/contract/index.ts";
import type { Answer, Effect, SandboxEvent } from "../lifecycle/events.ts";
import type { ReplyTo, SandboxRecord } from "../lifecycle/record.ts";
import type { Provider } from "../provider/provider.ts";
import { isRefusal, madeNothing } from "./choice.ts";
import { type Core, respond } from "./core.ts";
import { count } from "./counters.ts";
import { grantOf } from "./grant.ts";
import type { Looks } from "./looks.ts";
import type { Removals } from "./removals.ts";
import type { Live } from "./sandboxes.ts";

export type Apply = (live: Live, event: SandboxEvent) => void;

/** A sandbox's credential outlives its longest life by this, so that expiry never ends one that is still leased. */
const CREDENTIAL_SLACK_MS = 3600_000;

export class Effects {
  readonly #core: Core;
  readonly #removals: Removals;
  readonly #looks: Looks;
  /** Set once, right after construction: effects lead to events. */
  apply: Apply = () => {};

  constructor(core: Core, removals: Removals, looks: Looks) {
    this.#core = core;
    this.#removals = removals;
    this.#looks = looks;
  }

  carryOut = (live: Live, record: SandboxRecord, effect: Effect): void => {
    switch (effect.type) {
      case "write":
      case "gone":
        return;
      case "create":
        void this.#create(live, record);
        return;
      case "abort_create":
        live.create?.abort();
        return;
      case "remove":
        this.#remove(live, record);
        return;
      case "look":
        this.#looks.add(live);
        return;
      case "control":
        this.#control(live, record, effect);
        return;
      case "answer":
        this.#answer(live, record, effect.reply, effect.answer);
        return;
      case "event":
        this.#event(record, effect.what, effect.reason);
        return;
      default:
        assertNever(effect);
    }
  };

  async #create(live: Live, record: SandboxRecord): Promise<void> {
    // Ended while its intent was being written; the removal follows.
    if (live.record.state !== "intended") return;
    const provider = this.#core.providers.get(record.provider);
    const { spec } = record;
    const abort = new AbortController();
    live.create = abort;
    this.apply(live, { type: "create_begun" });
    try {
      if (provider === undefined || spec === undefined) {
        const { sandbox } = record;
        throw new ProviderError(`this pool has no provider ${record.provider}`, {
          sandbox,
          reason: "no_provider",
        });
      }
      const created = await provider.create(
        {
          sandbox: record.sandbox,
          tenant: record.tenant,
          run: record.run,
          spec,
          bootstrap: this.#bootstrap(record, provider),
          maxLifeMs: Math.max(1, record.dieAt - this.#core.now()),
        },
        abort.signal,
      );
      this.apply(live, { type: "created", uid: created.uid });
    } catch (thrown) {
      const error = toSandmeshError(thrown);
      this.#core.log.warn(
        { sandbox: record.sandbox, code: error.code, error: error.message },
        "create failed",
      );
      // A provider that does not even refuse is one that cannot be reached.
      const hung = live.record.end?.reason === "boot_timeout";
      if (hung || isRefusal(error)) {
        const why = hung ? "a create had no answer within the boot's time" : error.message;
        this.#core.choice.passOver(record.provider, why, this.#core.now());
      }
      const another = madeNothing(error) ? await this.#another(record) : undefined;
      if (another !== undefined) {
        this.apply(live, { type: "create_moved", provider: another });
        return;
      }
      this.apply(live, { type: "create_failed", error: error.toWire() });
    } finally {
      live.create = undefined;
    }
  }

  /** Another provider that can have it, and is not passed over. */
  async #another({ provider, spec }: SandboxRecord): Promise<string | undefined> {
    if (spec === undefined || spec.provider !== undefined) return undefined;
    const others = [...this.#core.providers].filter(([name]) => name !== provider);
    const answers = await Promise.allSettled(others.map(([, other]) => other.validate(spec)));
    const able = others.flatMap(([name], i) => (answers[i]?.status === "fulfilled" ? [name] : []));
    return this.#core.choice.another(able, this.#core.now());
  }

  #bootstrap(record: SandboxRecord, provider: Provider): Bootstrap {
    const core = this.#core;
    const { tenant, sandbox, spec, generation } = record;
    const { bootTimeoutMs, recoveryGraceMs } = core.limits;
    const credentials = core.minter.mintBootstrap({
      tenant,
      sandbox,
      ttlMs: Math.max(1, Math.ceil(record.bootDeadlineAt - core.now())) + recoveryGraceMs,
    });
    const env = Object.entries(spec?.env ?? {}).flatMap(([k, v]) => (v === null ? [] : [[k, v] as const]));
    const isolation = spec === undefined ? [] : provider.notIsolated(spec);
    return {
      version: 1,
      urls: [...core.daemonUrls],
      ...(core.ca === undefined ? {} : { ca: core.ca }),
      tenant,
      sandbox,
      generation,
      jwt: credentials.jwt,
      seed: credentials.seed,
      boot_timeout_ms: bootTimeoutMs,
      image: record.image,
      ...(env.length === 0 ? {} : { env: Object.fromEntries(env) }),
      ...(spec?.cwd === undefined ? {} : { cwd: spec.cwd }),
      isolation,
    };
  }

  #remove(live: Live, record: SandboxRecord): void {
    const provider = this.#core.providers.get(record.provider);
    if (provider === undefined) {
      this.#core.log.error(
        { sandbox: record.sandbox, provider: record.provider },
        "its provider is not configured",
      );
      this.apply(live, { type: "remove_failed" });
      return;
    }
    this.#removals.add(provider, {
      sandbox: record.sandbox,
      uid: live.record.uid,
      alone: record.removeAttempts > 0,
      done: (failure) => {
        if (failure === undefined) {
          this.apply(live, { type: "removed" });
          return;
        }
        this.#core.counters.removeFailures++;
        this.#core.log.warn(
          { sandbox: record.sandbox, error: failure.message },
          "removal failed; tried again later",
        );
        this.apply(live, { type: "remove_failed" });
      },
    });
  }

  /** What the daemon waits for the next word, from now. */
  #deadManMs(live: Live): number {
    const until = Math.max(live.run.record.expiresAt, live.record.confirmBy ?? 0);
    return Math.max(0, Math.ceil(until - this.#core.now())) + this.#core.limits.deadManGraceMs;
  }

  #control(live: Live, record: SandboxRecord, effect: Extract<Effect, { type: "control" }>): void {
    const { tenant, sandbox, lease, generation } = record;
    const body =
      effect.verb === "release"
        ? { version: 1, generation, reason: effect.reason }
        : effect.verb === "grant"
          ? { version: 1, lease, generation, dead_man_ms: this.#deadManMs(live) }
          : { version: 1, generation, dead_man_ms: this.#deadManMs(live) };
    this.#core.link.publish(controlSubject(tenant, sandbox, effect.verb), encode(body));
  }

  /** Passes a renewal on. */
  renew(live: Live): void {
    this.#control(live, live.record, { type: "control", verb: "renew" });
  }

  #answer(live: Live, record: SandboxRecord, reply: ReplyTo, answer: Answer): void {
    switch (answer.type) {
      case "grant":
        this.#core.counters.granted++;
        respond(this.#core, reply, grantOf(record, this.#core.limits.confirmMs));
        return;
      case "confirmed":
        respond(this.#core, reply, { sandbox: record.sandbox });
        return;
      case "enrolled":
        this.#enrolled(live, record, reply, answer.publicKey);
        return;
      case "error":
        count(this.#core.counters.errors, answer.error.code);
        respond(this.#core, reply, { error: answer.error });
        return;
      default:
        assertNever(answer);
    }
  }

  #enrolled(live: Live, record: SandboxRecord, reply: ReplyTo, publicKey: string): void {
    const now = this.#core.now();
    const jwt = this.#core.minter.mintSandbox({
      tenant: record.tenant,
      sandbox: record.sandbox,
      publicKey,
      ttlMs: Math.max(1, Math.ceil(record.dieAt - now)) + CREDENTIAL_SLACK_MS,
    });
    const boot = Math.max(0, Math.ceil(record.bootDeadlineAt - now)) + this.#core.limits.deadManGraceMs;
    respond(this.#core, reply, { jwt, dead_man_ms: Math.max(boot, this.#deadManMs(live)) });
  }

  #event(
    record: SandboxRecord,
    what: Extract<Effect, { type: "event" }>["what"],
    reason: string | undefined,
  ): void {
    const { tenant, run, sandbox, lease } = record;
    if (reason !== undefined) count(this.#core.counters.ended, reason);
    this.#core.log.info({ what, tenant, run, sandbox, lease, reason }, "sandbox");
    const at = new Date(this.#core.now()).toISOString();
    const body = { what, at, run, sandbox, lease, ...(reason === undefined ? {} : { reason }) };
    this.#core.link.publish(runEventSubject(tenant, run, what), encode(body));
  }
}
