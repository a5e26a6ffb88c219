// The pool: puts its parts together, subscribes, and takes care of starting and stopping.
import pino, { type Logger } from "pino";
import {
  ConnectionError,
  ENROL_WILDCARD,
  POOL_WILDCARD,
  READY_WILDCARD,
} from "../../broker/contract/index.ts";
import type { Link, Subscription } from "../../broker/link/link.ts";
import { type PoolLimits, poolLimits } from "../config.ts";
import type { Provider, ProviderEvent } from "../provider/provider.ts";
import { Deadlines } from "../reaper/deadlines.ts";
import type { RecordStore } from "../records/store.ts";
import { Acquires } from "./acquire.ts";
import { subscribeAdvisories } from "./advisories.ts";
import { isRefusal, ProviderChoice, type Weights } from "./choice.ts";
import type { Core, Minter } from "./core.ts";
import { type Counters, newCounters } from "./counters.ts";
import { Daemons } from "./daemons.ts";
import { Effects } from "./effects.ts";
import { Leases } from "./leases.ts";
import { Looks } from "./looks.ts";
import { type Meter, NO_METER } from "./meter.ts";
import { RECONCILE_DEADLINE, Reconciler } from "./reconcile.ts";
import { recover } from "./recovery.ts";
import { REMOVE_DEADLINE, Removals } from "./removals.ts";
import { Requests } from "./requests.ts";
import { Runs } from "./runs.ts";
import { Sandboxes, TOMBSTONES_DEADLINE } from "./sandboxes.ts";
import { Views } from "./views.ts";

export interface PoolOptions {
  /** A connection with the pool's credential; the pool closes it at its end. */
  link: Link;
  store: RecordStore;
  minter: Minter;
  /** Of different names; closed by the pool at its end. */
  providers: readonly Provider[];
  /** By name; of what is left out 0 (choice.ts). */
  weights?: Weights;
  /** NATS servers as sandboxes reach them. */
  daemonUrls: readonly string[];
  /** PEM of the CA, where they speak TLS. */
  ca?: string | undefined;
  limits?: Partial<PoolLimits>;
  name?: string;
  log?: Logger;
  meter?: Meter;
}

/** How the pool stands now. */
export interface Standing {
  /** Why it cannot answer, in words; undefined where it can. */
  notReady: string | undefined;
  connected: boolean;
  draining: boolean;
  queued: number;
  oldestWaitMs: number;
  /** Not yet given to anyone, and how many that may be. */
  starting: number;
  maxBooting: number;
  runs: number;
  /** Calls to providers' remove that are under way. */
  removing: number;
}

export interface Pool {
  readonly counters: Readonly<Counters>;
  standing(): Standing;
  /** Resolves when the pool may not go on: another one took over, or the connection is closed for good. */
  readonly failed: Promise<Error>;
  /** Stops answering and writing, and leaves the sandboxes as they are for the next pool. Releases nothing. */
  close(): Promise<void>;
}

/** How often deadlines are looked at again while the server is away: nothing may end for what nobody could hear. */
const AWAY_RETRY_MS = 1_000;
/** A server, or this process, that took longer than this to answer was away. */
const ABSENT_MS = 1_000;
/** And one that took longer than this may have stood still: what others had sent it is on its way behind the answer. */
const SLOW_MS = 100;
const CLOSE_GRACE_MS = 5_000;
const QUEUE_GROUP = "pool";

/** Takes up what the records and providers hold, then answers requests. Throws where records or providers cannot be
 * read. */
export async function startPool(options: PoolOptions): Promise<Pool> {
  const running = new RunningPool(options);
  await running.start();
  return running;
}

class RunningPool implements Pool {
  readonly counters: Counters = newCounters();
  readonly failed: Promise<Error>;
  readonly #core: Core;
  readonly #sandboxes: Sandboxes;
  readonly #runs: Runs;
  readonly #acquires: Acquires;
  readonly #leases: Leases;
  readonly #daemons: Daemons;
  readonly #removals: Removals;
  readonly #looks: Looks;
  readonly #reconciler: Reconciler;
  readonly #requests: Requests;
  readonly #subscriptions: Subscription[] = [];
  readonly #unwatch: (() => void)[] = [];
  /** Deadlines of lives that end when all has been heard that the server has for us. */
  readonly #due = new Set<string>();
  #connected = true;
  /** `close` was called. */
  #stopping = false;
  /** What happens from now on is the next pool's to find out. */
  #closing = false;

  constructor(options: PoolOptions) {
    const { link, store, minter, providers, daemonUrls, ca, name = "pool" } = options;
    const log = options.log ?? pino({ level: "silent" });
    const limits = poolLimits(options.limits);
    const choice = new ProviderChoice(options.weights ?? {}, limits.providerPassMs, (provider, why) =>
      log.warn({ provider, why }, "the provider is passed over for a while, where others can"),
    );
    const core: Core = {
      name,
      limits,
      choice,
      link,
      store,
      unanswered: new Map(),
      minter,
      providers: new Map(providers.map((provider) => [provider.name, provider])),
      deadlines: new Deadlines((key) => this.#deadline(key)),
      counters: this.counters,
      meter: options.meter ?? NO_METER,
      log,
      daemonUrls,
      ca,
      now: Date.now,
    };
    this.#core = core;
    this.#removals = new Removals(core);
    this.#runs = new Runs(core);
    this.#looks = new Looks(core, {
      all: () => this.#sandboxes.all(),
      apply: (live, event) => effects.apply(live, event),
    });
    const effects = new Effects(core, this.#removals, this.#looks);
    this.#sandboxes = new Sandboxes(core, this.#runs, effects.carryOut);
    effects.apply = (live, event) => {
      if (!this.#closing) this.#sandboxes.apply(live, event);
    };
    this.#reconciler = new Reconciler(core, this.#sandboxes, this.#removals);
    this.#acquires = new Acquires(core, this.#sandboxes, this.#runs);
    this.#leases = new Leases(core, this.#sandboxes, this.#runs, this.#acquires, effects);
    this.#daemons = new Daemons(core, this.#sandboxes);
    const views = new Views(core, this.#sandboxes, this.#runs, this.#acquires, this.#reconciler);
    this.#requests = new Requests(core, this.#sandboxes, this.#acquires, this.#leases, views);
    this.failed = new Promise((resolve) => {
      void store.failed.then(resolve);
      void link.closed.then((error) => {
        if (!this.#stopping) resolve(error ?? new ConnectionError("the pool's connection was closed"));
      });
    });
  }

  async start(): Promise<void> {
    const { link, providers, log, name } = this.#core;
    const { draining } = await recover(this.#core, this.#sandboxes, this.#runs, this.#reconciler);
    this.#acquires.draining = draining;
    if (draining) log.warn("draining, as an operator asked of a pool before this one: it takes no acquires");
    for (const provider of providers.values()) {
      this.#unwatch.push(provider.watch((event) => this.#providerEvent(provider.name, event)));
    }
    const queue = { queue: QUEUE_GROUP };
    this.#subscriptions.push(
      link.subscribe(POOL_WILDCARD, (message) => this.#requests.handle(message), queue),
      link.subscribe(ENROL_WILDCARD, (message) => this.#daemons.enrol(message), queue),
      link.subscribe(READY_WILDCARD, (message) => this.#daemons.ready(message), queue),
      ...subscribeAdvisories(link, (key, connection, type) => {
        this.#looks.know(connection.server);
        this.#daemons.connection(key, connection, type);
      }),
    );
    link.onStatus((connected) => this.#status(connected));
    this.#reconciler.arm();
    this.#looks.start();
    await link.flush();
    log.info({ pool: name, providers: [...providers.keys()] }, "the pool is ready");
  }

  standing(): Standing {
    const notReady = this.#stopping ? "it is stopping" : this.#connected ? undefined : "NATS is away";
    return {
      notReady,
      connected: this.#connected,
      draining: this.#acquires.draining,
      queued: this.#acquires.queued,
      oldestWaitMs: this.#acquires.oldestWaitMs,
      starting: this.#sandboxes.starting,
      maxBooting: this.#core.limits.maxBooting,
      runs: this.#runs.size,
      removing: this.#removals.running,
    };
  }

  async close(): Promise<void> {
    if (this.#stopping) return;
    this.#stopping = true;
    for (const subscription of this.#subscriptions) subscription.unsubscribe();
    for (const unwatch of this.#unwatch) unwatch();
    this.#core.deadlines.close();
    this.#looks.close();
    await Promise.race([this.#sandboxes.settled(), Bun.sleep(CLOSE_GRACE_MS)]);
    this.#closing = true;
    await this.#core.store.close(CLOSE_GRACE_MS);
    await Promise.allSettled([...this.#core.providers.values()].map((provider) => provider.close()));
    await this.#core.link.close();
    this.#core.log.info({ pool: this.#core.name }, "the pool has stopped; sandboxes stay");
  }

  #deadline(key: string): void {
    const { deadlines } = this.#core;
    if (!this.#connected && !key.startsWith(REMOVE_DEADLINE)) {
      deadlines.set(key, this.#core.now() + AWAY_RETRY_MS);
      return;
    }
    if (key === RECONCILE_DEADLINE) void this.#reconciler.reconcile();
    else if (key === TOMBSTONES_DEADLINE) this.#sandboxes.sweepTombstones();
    else if (key.startsWith(REMOVE_DEADLINE)) this.#removals.timeOut(key);
    else if (!this.#acquires.deadline(key) && !this.#leases.deadline(key)) this.#afterAll(key);
  }

  /** What was sent in time may still be on its way: where this process or the server stood still, a renewal lies in a
   * buffer when its lease's end comes up. The answer to a ping arrives behind all that. */
  #afterAll(key: string): void {
    this.#due.add(key);
    if (this.#due.size > 1) return;
    const asked = performance.now();
    const end = (absent: boolean): void => {
      if (this.#stopping) return;
      if (absent) this.#outageOver();
      const due = [...this.#due];
      this.#due.clear();
      for (const each of due) {
        if (absent || !this.#connected) this.#core.deadlines.set(each, this.#core.now() + AWAY_RETRY_MS);
        else this.#lifeDeadline(each);
      }
    };
    this.#core.link.flush().then(
      () => {
        const tookMs = performance.now() - asked;
        // Once, whatever the next answer would take: a server that is always slow must not keep leases alive.
        if (tookMs > SLOW_MS && tookMs <= ABSENT_MS) setTimeout(end, AWAY_RETRY_MS, false);
        else end(tookMs > ABSENT_MS);
      },
      () => end(true),
    );
  }

  /** What a deadline's time has come for; a life that was prolonged meanwhile stays. */
  #lifeDeadline(key: string): void {
    const live = this.#sandboxes.byDeadline(key);
    if (live !== undefined) this.#sandboxes.apply(live, { type: "deadline" });
    const run = this.#runs.byDeadline(key);
    if (run !== undefined) this.#leases.lapse(run);
  }

  /** The server was away: nobody could renew, confirm or speak, and what the pool said meanwhile may be lost. */
  #status(connected: boolean): void {
    this.#core.log.warn({ connected }, "connection to NATS");
    const back = connected && !this.#connected;
    this.#connected = connected;
    if (back) this.#outageOver();
  }

  #outageOver(): void {
    this.#runs.grace();
    this.#looks.anew();
    for (const live of [...this.#sandboxes.all()]) this.#sandboxes.apply(live, { type: "outage_over" });
  }

  #providerEvent(provider: string, event: ProviderEvent): void {
    const live = this.#sandboxes.get(event.sandbox);
    if (live === undefined || live.record.provider !== provider) return;
    if (event.type === "failed") {
      const { code, reason, message } = event;
      if (isRefusal(event)) this.#core.choice.passOver(provider, message, this.#core.now());
      this.#sandboxes.apply(live, { type: "provider_failed", code, reason, message });
    } else if (event.type === "lost") {
      const { reason, message } = event;
      this.#sandboxes.apply(live, { type: "provider_lost", reason, message });
    }
  }
}
