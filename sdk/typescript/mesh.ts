// A connection to a mesh: acquires sandboxes, keeps them, and gives them back.
import {
  type AnswerOf,
  ConnectionError,
  ID_PATTERN,
  InternalError,
  NotFoundError,
  PermissionDeniedError,
  type POOL_VERBS,
  randomName,
  SandboxLostError,
  type SandboxView,
} from "../../broker/contract/index.ts";
import { whenAborted } from "../../broker/link/on-abort.ts";
import { acquire } from "./acquire.ts";
import { type AcquireManyOptions, type AcquireOptions, acquireRequest } from "./acquire-options.ts";
import { given, invalid, nothingElse, onlySignal } from "./arguments.ts";
import { type EventFilter, events, type MeshEvent } from "./events.ts";
import { guard, type Releasing, unguard } from "./exit.ts";
import type { Abortable } from "./files/files.ts";
import {
  notReleased,
  type Order,
  orderOf,
  ordersOf,
  RELEASE_TIMEOUT_MS,
  type Releasable,
  release,
} from "./releases.ts";
import { Renewer } from "./renew/renewer.ts";
import { Run } from "./run.ts";
import { type Owner, Sandbox } from "./sandbox.ts";
import type { Settings } from "./settings.ts";
import { defined } from "./spec.ts";
import { type Held, Tenure } from "./tenure.ts";
import { type Duration, milliseconds } from "./units.ts";
import { Box } from "./wire/box.ts";
import type { Caller, PoolAnswer } from "./wire/caller.ts";
import { Lifeline } from "./wire/lifeline.ts";
import { listAll } from "./wire/listing.ts";
import { Losses } from "./wire/losses.ts";
import { stopWith, unlessAborted } from "./wire/pause.ts";
import type { Pulse } from "./wire/pulse.ts";

export interface MeshOptions {
  run?: string;
  lease?: Duration;
  handleSignals: boolean;
}

/** Acquires of one call; more than any pool queues, and no more than this process can hold. */
const MAX_AT_ONCE = 1_000_000;
/** On the way out of the process. */
const EXIT_TIMEOUT_MS = 10_000;

export class Mesh implements AsyncDisposable {
  readonly tenant: string;
  readonly user: string;
  /** The run of acquires that name none: of this connection alone, unless it was named in `connect`. */
  readonly defaultRun: string;
  readonly #caller: Caller;
  readonly #pulse: Pulse;
  readonly #renewer: Renewer;
  readonly #tenure: Tenure;
  readonly #losses: Losses;
  readonly #lease: Duration | undefined;
  readonly #releasing: Releasing;
  readonly #closing = new AbortController();
  readonly #acquiring = new Set<Promise<unknown>>();
  #closed: Promise<void> | undefined;
  /** What a sandbox may ask of us. */
  readonly #owner: Owner = {
    release: (sandbox, signal) => this.#releaseSandbox(sandbox, signal),
    detach: ({ id, grant }) => {
      if (grant !== undefined) this.#tenure.detach(grant.run, id);
    },
  };

  /** Internal: see `connect`. */
  constructor(settings: Settings, caller: Caller, pulse: Pulse, options: MeshOptions) {
    this.tenant = settings.tenant;
    this.user = settings.user;
    this.#caller = caller;
    this.#pulse = pulse;
    this.#renewer = new Renewer(settings, caller, (message) => this.#tenure.told(message));
    this.#tenure = new Tenure(caller, this.#renewer);
    this.#losses = new Losses(caller);
    this.#lease = options.lease;
    this.defaultRun = options.run ?? newRunId(settings.user);
    if (options.run === undefined) this.#tenure.own(this.defaultRun);
    this.#releasing = {
      handleSignals: options.handleSignals,
      releaseBlocking: () => {
        const order = this.#tenure.holdings;
        if (order.runs.length + order.leases.length === 0) return;
        this.#renewer.releaseBlocking({ ...order, timeoutMs: EXIT_TIMEOUT_MS });
      },
    };
    guard(this.#releasing);
  }

  /** For all that is no acquire. A program that begins with such may never acquire, and is spared the thread. */
  get #looking(): Caller {
    this.#renewer.onlyWithAcquires();
    return this.#caller;
  }

  /**
   * Acquires one sandbox. It is renewed by itself until it is released, and released at the latest when this
   * connection closes or the process ends. Throws AcquireTimeoutError, QueueFullError, QuotaExceededError,
   * UnsupportedError, ImageError, BootFailedError, PoolUnavailableError, DrainingError, InvalidRequestError,
   * CanceledError.
   */
  acquire(options: AcquireOptions): Promise<Sandbox> {
    const acquired = this.#acquire(options);
    this.#acquiring.add(acquired);
    const done = () => this.#acquiring.delete(acquired);
    acquired.then(done, done);
    return acquired;
  }

  async #acquire(options: AcquireOptions): Promise<Sandbox> {
    const { run = this.defaultRun, lease = this.#lease, signal, ...asked } = given(options);
    // Checked before the run is renewed for it.
    const request = acquireRequest({ ...asked, run, ...defined({ lease }) });
    this.#caller.throwIfUnusable();
    const closing = this.#closing.signal;
    const either = stopWith(signal);
    const unhear = whenAborted(closing, either.stop);
    this.#tenure.enter(run, request.lease_ms);
    let grant: Awaited<ReturnType<typeof acquire>> | undefined;
    let lifeline: Lifeline | undefined;
    try {
      grant = await acquire(
        this.#caller,
        this.#pulse,
        request,
        this.#tenure.open,
        either.signal,
        asked.id !== undefined,
      );
    } finally {
      unhear();
      either.end();
      lifeline = this.#tenure.leave(run, grant);
    }
    const { sandbox, generation, incarnation } = grant;
    const target = { sandbox, fence: { lease: grant.lease, generation, incarnation } };
    const box = new Box(this.#caller, this.#pulse, lifeline, target, { run });
    return new Sandbox(box, this.#owner, grant);
  }

  /**
   * Acquires many at once. Resolves when all are settled, to those that came; where fewer than `atLeast` came, these
   * are released again and the first error is thrown (the signal ends the waiting for that; the release goes on).
   * `count`: at most a million.
   */
  async acquireMany(count: number, options: AcquireManyOptions): Promise<Sandbox[]> {
    if (!Number.isSafeInteger(count) || count < 0 || count > MAX_AT_ONCE)
      throw invalid("count", `must be a whole number from 0 to ${MAX_AT_ONCE}`);
    const { atLeast = count, ...each } = given(options);
    if (!Number.isSafeInteger(atLeast) || atLeast < 0 || atLeast > count)
      throw invalid("atLeast", `must be a whole number from 0 to ${count}, which is how many are asked for`);
    const settled = await Promise.allSettled(Array.from({ length: count }, () => this.acquire(each)));
    const got = settled.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
    if (got.length >= atLeast) return got;
    await unlessAborted(Promise.allSettled(got.map((sandbox) => sandbox.release())), each.signal);
    const failed = settled.find((one) => one.status === "rejected");
    throw failed?.reason ?? new InternalError("an acquire neither came nor failed");
  }

  /** A run: its sandboxes are renewed together, and closing it ends them all at once. Default: a new one. */
  run(id?: string, options: { lease?: Duration } = {}): Run {
    if (id !== undefined && !(typeof id === "string" && ID_PATTERN.test(id)))
      throw invalid("run", "must be 1 to 63 of a-z, 0-9 and '-', and start with a letter or digit");
    const { lease = this.#lease, ...rest } = given(options);
    nothingElse(rest);
    const run = id ?? newRunId(this.user);
    this.#tenure.own(run);
    return new Run(this, run, lease);
  }

  /** A handle to a sandbox that was acquired elsewhere. It is neither renewed nor, by itself, released, and no lease
   * guards it. Nothing is asked. */
  sandbox(id: string): Sandbox {
    if (typeof id !== "string") throw invalid("sandbox", "must be a sandbox's id");
    const target = { sandbox: id, fence: {} };
    const box = new Box(this.#looking, this.#pulse, new Lifeline(), target, { losses: this.#losses });
    return new Sandbox(box, this.#owner);
  }

  /** The tenant's sandboxes, or a run's, by id. */
  async list(options: { run?: string; signal?: AbortSignal } = {}): Promise<SandboxView[]> {
    const { run, signal, ...rest } = given(options);
    nothingElse(rest);
    return await listAll(this.#looking, { run, signal });
  }

  /** The pool in figures. */
  status(options: { signal?: AbortSignal } = {}): Promise<AnswerOf<(typeof POOL_VERBS)["status"]>> {
    return this.#looking.pool("status", {}, onlySignal(options));
  }

  /** Renews a run once. What this connection acquired is renewed by itself. Throws NotFoundError. */
  renew(
    run: string,
    lease?: Duration,
    options: Abortable = {},
  ): Promise<AnswerOf<(typeof POOL_VERBS)["renew"]>> {
    const leaseMs = lease === undefined ? {} : { lease_ms: milliseconds(lease, "lease") };
    return this.#looking.pool("renew", { run, ...leaseMs }, onlySignal(options));
  }

  /** Ends a sandbox, what a lease stands for, or a whole run; resolves when it is gone, and verified so, to how many
   * sandboxes this call ended. Releasing what is gone succeeds; with `mustExist` a sandbox or lease that the pool never
   * had, or that ended so long ago that it is forgotten, is a NotFoundError. The signal ends the waiting; the release goes
   * on. */
  async release(
    what: Releasable | Sandbox,
    options: { signal?: AbortSignal; mustExist?: boolean } = {},
  ): Promise<number> {
    const { signal, mustExist, ...rest } = given(options);
    nothingElse(rest);
    if (what instanceof Sandbox) {
      await this.#releaseSandbox(what, signal);
      return 1;
    }
    const order = orderOf(what);
    const held = "run" in order ? this.#tenure.beginRelease(order.run) : [];
    const answer = await this.#releaseHeld(held, order, signal);
    if (mustExist === true && answer.known === 0) {
      const [[kind, id] = []] = Object.entries(order);
      throw new NotFoundError(`there is no ${kind} ${id}`, "sandbox" in order ? order : {});
    }
    return answer.released;
  }

  /** Internal: see `Run.close`. */
  async closeRun(run: string, signal: AbortSignal | undefined): Promise<void> {
    // Closing has released what this connection held of it, or is doing so.
    if (this.#closed !== undefined) await unlessAborted(this.#closed, signal);
    else await this.release({ run }, defined({ signal }));
  }

  async #releaseSandbox(sandbox: Sandbox, signal?: AbortSignal): Promise<void> {
    // Closing has released it already, or is doing so.
    if (this.#closed !== undefined) return await unlessAborted(this.#closed, signal);
    const { id, grant } = sandbox;
    const held = grant === undefined ? [] : this.#tenure.beginRelease(grant.run, id);
    const fence = grant === undefined ? {} : { generation: grant.generation };
    await this.#releaseHeld(held, { sandbox: id, ...fence }, signal);
  }

  /** Who closes, or ends, before it is verified waits for it there. */
  #releaseHeld(
    held: readonly Held[],
    order: Order,
    signal: AbortSignal | undefined,
  ): Promise<PoolAnswer<"release">> {
    for (const { sandbox, lifeline } of held) lifeline.fail(released(sandbox));
    const verified = release(this.#looking, this.#pulse, order).then((answer) => {
      for (const each of held) this.#tenure.released(each);
      return answer;
    });
    return unlessAborted(verified, signal);
  }

  /** What happens in the mesh, from now on; and `{ what: "missed" }`, whatever the filter, where the connection was lost and is
   * back, or the reader was 10,000 events behind: look again with `list`, since what happened meanwhile is not told. Throws
   * InvalidRequestError, CanceledError, ConnectionError (the mesh was closed, or its server has been away for a minute),
   * PermissionDeniedError (the server refuses to tell of them). */
  events(filter: EventFilter = {}): AsyncGenerator<MeshEvent, void, void> {
    return events(this.#looking, filter);
  }

  /** Stops new acquires (`on: false`: allows them again), and with `releaseAll` ends all sandboxes. For an
   * operator; throws PermissionDeniedError for others. */
  async drain(
    options: { on?: boolean; releaseAll?: boolean; signal?: AbortSignal } = {},
  ): Promise<AnswerOf<(typeof POOL_VERBS)["drain"]>> {
    const { on = true, releaseAll = false, signal, ...rest } = given(options);
    nothingElse(rest);
    const request = { on, release_all: releaseAll };
    try {
      return await this.#looking.pool("drain", request, { timeoutMs: RELEASE_TIMEOUT_MS, signal });
    } catch (error) {
      if (!(error instanceof PermissionDeniedError) || error.reason !== "publish") throw error;
      const { message, reason } = error;
      throw new PermissionDeniedError(`only an operator may drain the pool: ${message}`, {
        reason,
        cause: error,
      });
    }
  }

  /** Releases all that this connection acquired and waits until it is gone; then closes. Throws what kept a release
   * from being verified, after closing: ConnectionError where the server has been away for 10 s, which then says what
   * ends only when its lease lapses. (A server that hangs is known to be away after 12 s: with it gone for good, either way,
   * this takes at most some 23 s.) The signal ends the waiting; the closing goes on. */
  async close(options: Abortable = {}): Promise<void> {
    const { signal } = onlySignal(options);
    this.#closed ??= this.#close();
    await unlessAborted(this.#closed, signal);
  }

  async #close(): Promise<void> {
    this.#closing.abort();
    await Promise.allSettled([...this.#acquiring]);
    const held = this.#tenure.sandboxes;
    const settled = await Promise.allSettled(
      ordersOf(this.#tenure.holdings).map((order) => release(this.#caller, this.#pulse, order)),
    );
    unguard(this.#releasing);
    this.#tenure.close();
    this.#losses.close();
    await this.#renewer.close();
    await this.#caller.link.close();
    const failed = settled.find((one) => one.status === "rejected");
    if (failed === undefined) return;
    if (!(failed.reason instanceof ConnectionError)) throw failed.reason;
    // An acquire that was under way has no sandbox that anyone knows of, and is taken back for want of a confirmation.
    if (held.length > 0) throw notReleased(held, failed.reason);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

/** 50 random bits, behind as much of the user's name as an id of 63 characters has room for. */
const newRunId = (user: string): string => `${user.slice(0, 40)}-${randomName(10)}`;

const released = (sandbox: string): SandboxLostError =>
  new SandboxLostError(`sandbox ${sandbox} was released`, { sandbox, reason: "released" });
