// An open sandbox: subscribed, it says ready, answers, and ends when the pool says so.
import {
  controlWildcard,
  DeadlineError,
  encode,
  sandboxEventSubject,
  sandboxWildcard,
} from "../contract/index.ts";
import type { Link, Message, Subscription } from "../link/link.ts";
import { Alarm, Deadlines } from "./alarm.ts";
import { Context, type Counters } from "./context.ts";
import { Dispatch } from "./dispatch.ts";
import { Downloads } from "./download.ts";
import type { End, Endpoint, EndpointOptions } from "./endpoint.ts";
import { subscribed } from "./enrol.ts";
import { Execution } from "./exec.ts";
import type { Executor } from "./executor.ts";
import { Flow, MAX_IN_FLIGHT_BYTES } from "./flow.ts";
import { SILENT } from "./log.ts";
import { Looks } from "./looks.ts";
import { RETENTION } from "./retention.ts";
import { Tenure } from "./tenure.ts";
import { Uploads } from "./upload.ts";
import { routesOf } from "./verbs.ts";

/** Until the pool's first word. */
const READY_REPEAT_MS = 1_000;
const DEFAULT_GRACE_MS = 1_000;
/** How long beyond its grace an executor may take to close before the end goes on without it. */
const CLOSE_SLACK_MS = 2_000;

export class SandboxEndpoint implements Endpoint {
  readonly incarnation: string;
  readonly ended: Promise<End>;
  readonly #options: EndpointOptions;
  readonly #link: Link;
  readonly #executor: Executor;
  readonly #context: Context;
  readonly #tenure: Tenure;
  readonly #downloads: Downloads;
  readonly #uploads: Uploads;
  readonly #looks: Looks;
  readonly #flow: Flow;
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
    const { bootstrap, retention = RETENTION, now = () => performance.now() } = options;
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
    // A sandbox that is to hold less output than that has no more of it on its way, either.
    const flow = new Flow(Math.min(MAX_IN_FLIGHT_BYTES, retention.bytes));
    this.#flow = flow;
    const execution = new Execution(context, flow, executor, retention);
    this.#context = context;
    this.#downloads = new Downloads(context, flow);
    this.#uploads = new Uploads(context);
    this.#looks = new Looks(context);
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
      looks: this.#looks,
      tenure: this.#tenure,
      about: () => this.#about(),
    });
    this.#dispatch = new Dispatch(context, flow, this.#tenure, execution, routes, this.#looks);
  }

  get generation(): number {
    return this.#tenure.generation;
  }

  get connected(): boolean {
    return this.#context.connected;
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
      this.#context.connected = connected;
      this.#context.log.info({ sandbox, connected }, "the connection");
      if (!connected || this.#context.over) return;
      this.#flow.returned();
      this.#ready();
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
    this.#looks.close();
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
