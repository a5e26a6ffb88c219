// Acquires: admission, the queue, and the pump that begins creates as fast as the pacing lets it.
import {
  CanceledError,
  ConflictError,
  check,
  decode,
  encode,
  newUuidV7,
  poolEventSubject,
  QueueFullError,
  runEventSubject,
  type SandmeshError,
  toSandmeshError,
} from "../../broker/contract/index.ts";
import { letGo, type ReplyTo, withReply } from "../lifecycle/record.ts";
import { acquireTimeout } from "../lifecycle/timeout.ts";
import { decide } from "../pace/pace.ts";
import { type Bucket, fullBucket } from "../pace/token-bucket.ts";
import { FairQueue } from "../queue/fair-queue.ts";
import { Admission } from "./admission.ts";
import { type Core, respondError } from "./core.ts";
import { Head, intentOf, type Waiting } from "./intent.ts";
import type { Runs } from "./runs.ts";
import { leaseKey, type Sandboxes } from "./sandboxes.ts";
import { type Able, Specs } from "./specs.ts";

/** How an acquire ended that never got a sandbox: for those who ask again. */
interface Refused {
  /** Undefined where its release came first. */
  digest: string | undefined;
  error: SandmeshError;
}

const released = (): CanceledError => new CanceledError("the acquire was released");

const DEADLINE = "acquire:";
const REFUSED_DEADLINE = "refused:";
const PUMP_DEADLINE = "pump";

export class Acquires {
  readonly #core: Core;
  readonly #sandboxes: Sandboxes;
  readonly #runs: Runs;
  readonly #specs: Specs;
  readonly #queue: FairQueue<Waiting>;
  /** All without a sandbox, also those whose spec a provider is looking at. */
  readonly #waiting = new Map<string, Waiting>();
  readonly #admission: Admission;
  readonly #refused = new Map<string, Refused>();
  #bucket: Bucket;
  /** The pump runs after this tick. */
  #scheduled = false;

  constructor(core: Core, sandboxes: Sandboxes, runs: Runs) {
    this.#core = core;
    this.#sandboxes = sandboxes;
    this.#runs = runs;
    this.#specs = new Specs(core);
    this.#queue = new FairQueue(core.limits);
    this.#admission = new Admission(core.limits, sandboxes, runs);
    this.#bucket = fullBucket(this.#pace(), core.now());
    sandboxes.onRoom = () => this.#soon();
  }

  get draining(): boolean {
    return this.#admission.draining;
  }

  set draining(on: boolean) {
    this.#admission.draining = on;
  }

  get queued(): number {
    return this.#waiting.size;
  }

  /** How long the oldest has waited, ms; 0 where none waits. */
  get oldestWaitMs(): number {
    for (const { requestedAt } of this.#waiting.values()) return Math.max(0, this.#core.now() - requestedAt);
    return 0;
  }

  /** Throws SandmeshErrors for what is refused at once; everything else is answered later. */
  acquire(tenant: string, user: string, reply: ReplyTo, body: Uint8Array): void {
    const request = decode(body);
    const given = check(Head, request);
    const head = { ...given, id: given.id ?? newUuidV7(), run: given.run ?? user };
    const known = this.#specs.parse(request.spec);
    const digest = `${known.digest}.${head.run}.${head.lease_ms}.${head.max_life_ms}`;
    const key = leaseKey(tenant, head.id);
    if (this.#attach(tenant, key, head.id, digest, reply)) return;
    this.#admission.admit(tenant, head.run);
    this.#core.counters.acquires++;
    const live = this.#runs.touch(tenant, head.run, head.lease_ms, head.renews);
    const waiting: Waiting = {
      tenant,
      run: head.run,
      id: head.id,
      digest,
      head,
      known,
      live,
      requestedAt: this.#core.now(),
      replies: [reply],
      able: undefined,
    };
    this.#enter(key, waiting);
    // Only of those that will wait, for a burst of thousands is noise enough.
    if (this.#sandboxes.starting + this.#waiting.size > this.#core.limits.maxBooting) this.#announce(waiting);
    const able = this.#specs.able(known);
    if (!(able instanceof Promise)) this.#push(key, waiting, able);
    else {
      able.then(
        (names) => this.#push(key, waiting, names),
        (thrown: unknown) => this.#refuse(key, waiting, toSandmeshError(thrown)),
      );
    }
  }

  #announce({ tenant, run, id }: Waiting): void {
    const at = new Date(this.#core.now()).toISOString();
    this.#core.link.publish(
      runEventSubject(tenant, run, "queued"),
      encode({ what: "queued", at, run, lease: id }),
    );
  }

  /** Whether this id is known: then who asks gets its answer, now or when there is one. */
  #attach(tenant: string, key: string, id: string, digest: string, reply: ReplyTo): boolean {
    const live = this.#sandboxes.byLease(tenant, id);
    if (live !== undefined) {
      const { replies } = live.record;
      this.#sandboxes.apply(live, { type: "attach", digest, reply });
      this.#owe(replies, live.record.replies);
      return true;
    }
    const known = this.#waiting.get(key) ?? this.#refused.get(key);
    if (known === undefined) return false;
    if (known.digest !== undefined && known.digest !== digest) {
      throw new ConflictError(`acquire ${id} was sent before with other content`, { field: "id" });
    }
    if ("error" in known) throw known.error;
    const { replies } = known;
    known.replies = withReply(replies, reply);
    this.#owe(replies, known.replies);
    this.#runs.extend(known.live, known.head.lease_ms);
    return true;
  }

  /** Who has asked too often before is owed no answer at the first address. */
  #owe(before: readonly ReplyTo[] | undefined, after: readonly ReplyTo[] | undefined): void {
    for (const { subject } of letGo(before, after)) this.#core.unanswered.delete(subject);
  }

  #enter(key: string, waiting: Waiting): void {
    this.#waiting.set(key, waiting);
    this.#admission.entered(waiting.tenant);
    waiting.live.waiting.add(waiting.id);
    this.#core.deadlines.set(DEADLINE + key, waiting.requestedAt + waiting.head.timeout_ms);
  }

  #leave(key: string, waiting: Waiting): void {
    this.#waiting.delete(key);
    this.#admission.left(waiting.tenant);
    waiting.live.waiting.delete(waiting.id);
    this.#core.deadlines.clear(DEADLINE + key);
  }

  #push(key: string, waiting: Waiting, able: Able): void {
    // Cancelled, or out of time, while the provider looked at its spec.
    if (this.#waiting.get(key) !== waiting) return;
    waiting.able = able;
    if (this.#queue.push(waiting)) this.#soon();
    else this.#refuse(key, waiting, new QueueFullError("the queue is full; ask again later"));
  }

  /** Ends an acquire that has no sandbox; it is answered, and remembered for those who ask again. */
  #refuse(key: string, waiting: Waiting, error: SandmeshError): void {
    if (this.#waiting.get(key) !== waiting) return;
    this.#queue.remove(waiting);
    this.#leave(key, waiting);
    this.#remember(key, { digest: waiting.digest, error });
    for (const reply of waiting.replies) respondError(this.#core, reply, error);
    this.#runs.dropIfEmpty(waiting.live);
  }

  #remember(key: string, refused: Refused): void {
    this.#refused.set(key, refused);
    this.#core.deadlines.set(REFUSED_DEADLINE + key, this.#core.now() + this.#core.limits.tombstoneMs);
    for (const oldest of this.#refused.keys()) {
      if (this.#refused.size <= this.#core.limits.maxTombstones) break;
      this.#refused.delete(oldest);
    }
  }

  /** A release of an acquire that is not known may have overtaken it, on another connection of a process that ends: it
   * is not begun when it comes, for nobody would be left to take it. */
  forbid(tenant: string, id: string): void {
    const key = leaseKey(tenant, id);
    if (!this.#refused.has(key)) this.#remember(key, { digest: undefined, error: released() });
  }

  /** Takes an acquire that still waits out of the queue; false where none does. */
  cancel(tenant: string, id: string, error: SandmeshError = released()): boolean {
    const key = leaseKey(tenant, id);
    const waiting = this.#waiting.get(key);
    if (waiting === undefined) return false;
    this.#refuse(key, waiting, error);
    return true;
  }

  cancelAll(error: SandmeshError): void {
    for (const [key, waiting] of [...this.#waiting]) this.#refuse(key, waiting, error);
  }

  /** A deadline of this part has passed; false where `key` is none of its. */
  deadline(key: string): boolean {
    if (key === PUMP_DEADLINE) this.#pump();
    else if (key.startsWith(REFUSED_DEADLINE)) this.#refused.delete(key.slice(REFUSED_DEADLINE.length));
    else if (key.startsWith(DEADLINE)) {
      const lease = key.slice(DEADLINE.length);
      const waiting = this.#waiting.get(lease);
      if (waiting !== undefined) this.#refuse(lease, waiting, acquireTimeout("queued"));
    } else return false;
    return true;
  }

  #pace() {
    const { createsPerSecond: perSecond, createBurst: burst, maxBooting } = this.#core.limits;
    return { perSecond, burst, maxBooting };
  }

  /** After this tick: a burst's acquires have all arrived by then, and get their turns in a fair order. */
  #soon(): void {
    if (this.#scheduled || this.#queue.size === 0) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      this.#pump();
    });
  }

  #pump(): void {
    const pace = this.#pace();
    while (this.#queue.size > 0) {
      const now = this.#core.now();
      const decision = decide(this.#bucket, this.#sandboxes.starting, pace, now);
      if (!decision.go) {
        this.#core.meter.paced(decision.because);
        if (decision.because === "rate") {
          this.#bucket = decision.bucket;
          this.#core.deadlines.set(PUMP_DEADLINE, now + decision.waitMs);
        }
        return;
      }
      const waiting = this.#queue.take((run) => this.#mayBegin(run));
      // Those whose turn it is leave the last places to runs and tenants that have few booting.
      if (waiting?.able === undefined) {
        this.#core.meter.paced("booting");
        return;
      }
      this.#core.meter.paced("go");
      this.#bucket = decision.bucket;
      this.#begin(waiting, waiting.able, now);
    }
  }

  /** The last places are for runs that have few booting, and the last half of these for tenants that have few: a run whose
   * sandboxes boot slowly, or hang, keeps no other from beginning, nor does a tenant, however many runs it names. */
  #mayBegin({ live, tenant }: Waiting): boolean {
    const { maxBooting, reservedBooting } = this.#core.limits;
    const reserved = Math.min(reservedBooting, Math.floor(maxBooting / 4));
    const left = maxBooting - this.#sandboxes.starting;
    if (left > reserved) return true;
    if (left > Math.ceil(reserved / 2)) return live.starting < reserved;
    return this.#sandboxes.startingOf(tenant) < reserved;
  }

  /** The intent: from here on the pool owes either a grant or a removal. */
  #begin(waiting: Waiting, able: Able, now: number): void {
    this.#leave(leaseKey(waiting.tenant, waiting.id), waiting);
    const { limits, meter } = this.#core;
    meter.step("queued", now - waiting.requestedAt);
    // Not before its turn: who refuses by then is passed over.
    const provider = this.#core.choice.pick(able, now);
    const record = intentOf(waiting, provider, this.#warnings(waiting, provider), limits, now);
    this.#sandboxes.add(record, [{ type: "write" }, { type: "event", what: "creating" }, { type: "create" }]);
  }

  #warnings({ known }: Waiting, provider: string): string[] | undefined {
    const ignored = known.unknown.map((field) => `${field}: there is no such field; it was ignored`);
    const warnings = [...ignored, ...(this.#core.providers.get(provider)?.warnings?.(known.spec) ?? [])];
    return warnings.length === 0 ? undefined : warnings;
  }

  /** Tells `heard`, and each tenant that has anything here, that the pool is draining. */
  announceDraining(heard: Iterable<string>): void {
    const at = new Date(this.#core.now()).toISOString();
    for (const tenant of new Set([...heard, ...this.#admission.tenants(), ...this.#sandboxes.tenants()])) {
      this.#core.link.publish(poolEventSubject(tenant, "draining"), encode({ what: "draining", at }));
    }
  }
}
