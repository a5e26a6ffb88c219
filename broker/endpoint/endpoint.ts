// A sandbox's whole side of the wire: enrols, connects, says ready, answers, and ends when the pool says so.
import {
  type Bootstrap,
  CanceledError,
  controlWildcard,
  DeadlineError,
  encode,
  newUuidV7,
  sandboxEventSubject,
  sandboxWildcard,
} from "../contract/index.ts";
import type { ConnectOptions } from "../link/connect.ts";
import type { Link, Message, Subscription } from "../link/link.ts";
import { Alarm, Deadlines } from "./alarm.ts";
import type { Retention } from "./commands.ts";
import { Context, type Counters } from "./context.ts";
import { Dispatch } from "./dispatch.ts";
import { Downloads } from "./download.ts";
import { addressOf, dial, enrol, subscribed } from "./enrol.ts";
import { Execution } from "./exec.ts";
import type { Executor } from "./executor.ts";
import { Flow } from "./flow.ts";
import { type Log, SILENT } from "./log.ts";
import { Tenure } from "./tenure.ts";
import { Uploads } from "./upload.ts";
import { routesOf } from "./verbs.ts";

/** Why an endpoint ended: `released` by the pool (with its reason), `dead_man` (no word of the pool for the time it
 * had said), `closed` by its owner, `disconnected` for good. */
export interface End {
  why: "released" | "dead_man" | "closed" | "disconnected";
  reason: string;
}

export interface EndpointOptions {
  bootstrap: Bootstrap;
  /** A promise where it is being made while the endpoint enrols. */
  executor: Executor | Promise<Executor>;
  log?: Log;
  /** Milliseconds that only grow. */
  now?: () => number;
  /** On `now`'s clock: the daemon's exec. Default: 0, this process's start on performance.now's clock. */
  startedAtMs?: number;
  /** Called once, when it has ended and all is closed. */
  onEnd?: (end: End) => void;
  /** Between a release (or the dead man's time) and the end by force of what runs. */
  graceMs?: number;
  /** Gives the boot up; of no effect after it. */
  signal?: AbortSignal;
  retention?: Retention;
  reconnect?: ConnectOptions["reconnect"];
  dial?: ConnectOptions["dial"];
}

export interface Endpoint {
  readonly incarnation: string;
  /** Of the bootstrap, or of the last grant. */
  readonly generation: number;
  readonly counters: Readonly<Counters>;
  /** Resolves when it has ended and all is closed. */
  readonly ended: Promise<End>;
  /** Hears and says nothing from now on, as a process that was stopped; but for the connection itself. For trying out
   * what becomes of the others. */
  freeze(): void;
  /** Ends all commands within the grace, and the connection. */
  close(): Promise<void>;
}

/** Until the pool's first word. */
const READY_REPEAT_MS = 1_000;
const DEFAULT_GRACE_MS = 1_000;
/** How long beyond its grace an executor may take to close before the end goes on without it. */
const CLOSE_SLACK_MS = 2_000;

/** Boots: resolves when the sandbox is subscribed, flushed and announced. Throws within the bootstrap's time limit, by
 * then with nothing left open but the executor: DeadlineError, ConnectionError, PermissionDeniedError, or what the pool
 * refused the enrolment with. */
export async function openEndpoint(options: EndpointOptions): Promise<Endpoint> {
  const { bootstrap } = options;
  const incarnation = newUuidV7();
  const deadline = performance.now() + bootstrap.boot_timeout_ms;
  const { signal } = options;
  const address = addressOf(bootstrap, options.dial);
  const { credentials, deadManMs } = await enrol(bootstrap, address, incarnation, deadline, signal);
  const current = { ...credentials };
  const log = options.log ?? SILENT;
  const own: Parameters<typeof dial>[0] = {
    ...address,
    credentials: () => current,
    ...(options.reconnect === undefined ? {} : { reconnect: options.reconnect }),
    onError: (error, what) => log.warn({ sandbox: bootstrap.sandbox, what, error }, "the connection"),
  };
  const link = await dial(own, deadline, signal);
  try {
    const executor = await options.executor;
    if (signal?.aborted) throw new CanceledError("the boot was canceled");
    const endpoint = new SandboxEndpoint(options, incarnation, link, executor, (jwt) => {
      current.jwt = jwt;
    });
    await endpoint.open(deadManMs, deadline);
    return endpoint;
  } catch (error) {
    await link.close();
    throw error;
  }
}

class SandboxEndpoint implements Endpoint {
  readonly incarnation: string;
  readonly ended: Promise<End>;
  readonly #options: EndpointOptions;
  readonly #link: Link;
  readonly #executor: Executor;
  readonly #context: Context;
  readonly #tenure: Tenure;
  readonly #downloads: Downloads;
  readonly #uploads: Uploads;
  readonly #dispatch: Dispatch;
  readonly #now: () => number;
  readonly #openedAtMs: number;
  readonly #readyAgain = new Alarm(() => this.#ready());
  readonly #subscriptions: Subscription[] = [];
  #bootMs = 0;
  #ending: End | undefined;
  #endedWith!: (end: End) => void;

  constructor(
    options: EndpointOptions,
    incarnation: string,
    link: Link,
    executor: Executor,
    credential: (jwt: string) => void,
  ) {
    const { bootstrap, now = () => performance.now() } = options;
    const { tenant, sandbox, generation } = bootstrap;
    this.#options = options;
    this.#link = link;
    this.#executor = executor;
    this.#now = now;
    this.#openedAtMs = now();
    this.incarnation = incarnation;
    this.ended = new Promise((resolve) => {
      this.#endedWith = resolve;
    });
    const deadlines = new Deadlines(now);
    const log = options.log ?? SILENT;
    const context = new Context({ tenant, sandbox, incarnation, link, log, deadlines, now });
    const flow = new Flow();
    const execution = new Execution(context, flow, executor, options.retention);
    this.#context = context;
    this.#downloads = new Downloads(context, flow);
    this.#uploads = new Uploads(context);
    this.#tenure = new Tenure(context, generation, {
      heard: () => deadlines.clear(this.#readyAgain),
      released: (reason) => this.#end({ why: "released", reason }),
      deadMan: () => this.#end({ why: "dead_man", reason: "dead_man" }),
      credential,
    });
    const routes = routesOf({
      context,
      executor,
      execution,
      downloads: this.#downloads,
      uploads: this.#uploads,
      tenure: this.#tenure,
      about: () => this.#about(),
    });
    this.#dispatch = new Dispatch(context, flow, this.#tenure, execution, routes);
  }

  get generation(): number {
    return this.#tenure.generation;
  }

  get counters(): Readonly<Counters> {
    return this.#context.counters;
  }

  async open(deadManMs: number, deadline: number): Promise<void> {
    const { tenant, sandbox } = this.#context;
    const prefix = controlWildcard(tenant, sandbox).length - 1;
    const word = (message: Message) => {
      if (!this.#context.over) this.#tenure.word(message.subject.slice(prefix), message.data);
    };
    this.#subscriptions.push(
      this.#link.subscribe(sandboxWildcard(tenant, sandbox), this.#dispatch.handle),
      this.#link.subscribe(controlWildcard(tenant, sandbox), word),
    );
    await subscribed(this.#link, deadline);
    this.#tenure.keepAlive(deadManMs);
    this.#bootMs = this.#now() - (this.#options.startedAtMs ?? 0);
    this.#ready();
    // A word of the pool may have been lost with the connection; to say ready again asks for it.
    this.#link.onStatus((connected) => {
      this.#context.log.info({ sandbox, connected }, "the connection");
      if (connected && !this.#context.over) this.#ready();
    });
    this.#link.closed.then((reason) =>
      this.#end({ why: "disconnected", reason: reason?.message ?? "the connection was closed" }),
    );
  }

  #ready(): void {
    const { tenant, sandbox, log, deadlines } = this.#context;
    const body = encode({
      version: 1,
      generation: this.#tenure.generation,
      incarnation: this.incarnation,
      boot_ms: this.#bootMs,
    });
    try {
      this.#link.publish(sandboxEventSubject(tenant, sandbox, "ready"), body);
    } catch (error) {
      log.warn({ sandbox, error }, "ready was not sent");
    }
    deadlines.set(this.#readyAgain, READY_REPEAT_MS);
  }

  #about() {
    const { image, isolation } = this.#options.bootstrap;
    return {
      uptime_ms: Math.max(0, Math.round(this.#now() - this.#openedAtMs)),
      boot_ms: this.#bootMs,
      not_isolated: isolation ?? [],
      ...(image === undefined ? {} : { image }),
    };
  }

  #end(end: End): void {
    if (this.#ending !== undefined) return;
    this.#ending = end;
    const { log, sandbox } = this.#context;
    log.info({ sandbox, ...end }, "the sandbox ends");
    this.#close().then(
      () => this.#over(end),
      (error) => {
        log.error({ sandbox, error }, "the end was not an orderly one");
        this.#over(end);
      },
    );
  }

  #over(end: End): void {
    this.#endedWith(end);
    this.#options.onEnd?.(end);
  }

  async #close(): Promise<void> {
    const { graceMs = DEFAULT_GRACE_MS } = this.#options;
    // Nothing more is published: the sandbox is not its caller's any more.
    this.#context.over = true;
    // Who still asks hears at once that nobody is there, and not nothing.
    for (const subscription of this.#subscriptions) subscription.unsubscribe();
    this.#context.deadlines.close();
    this.#downloads.close();
    const executorClosed = Promise.all([this.#executor.close(graceMs), this.#uploads.close()]);
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(
        () => reject(new DeadlineError("the executor did not close in time")),
        graceMs + CLOSE_SLACK_MS,
      );
    });
    try {
      await Promise.race([executorClosed, late]);
    } finally {
      clearTimeout(timer);
      // What ended just now may have set a time limit of its own.
      this.#context.deadlines.close();
      await this.#link.close();
    }
  }

  freeze(): void {
    this.#context.over = true;
    this.#context.deadlines.close();
  }

  async close(): Promise<void> {
    this.#end({ why: "closed", reason: "closed" });
    await this.ended;
  }
}
