// The pool's Prometheus metrics. Names and labels stand in README.md beside this file; every label is of a closed list
// or bounded here, so that no tenant, run or sandbox ever becomes a time series.
import { Counter, Gauge, Histogram, Registry } from "prom-client";
import { version } from "../../package.json" with { type: "json" };
import type { Provider } from "../provider/provider.ts";
import type { Meter, PaceDecision, Step } from "../service/meter.ts";
import type { Pool } from "../service/pool.ts";
import type { CallMeter, ProviderCall, RecordWrite } from "./metered.ts";
import { measureProcess } from "./process.ts";

/** From a hop on the local network to an image pull, seconds. */
const STEP_BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300];
const WRITE_BUCKETS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5, 30];
/** Reasons and codes are closed lists in our own code, but some pass on a provider's word. */
const MAX_WORDS = 64;

/** Lets the first `MAX_WORDS` words through; all others, and what is no word, are `other`. */
export function boundedWords(): (word: string) => string {
  const known = new Set<string>();
  return (word) => {
    if (known.has(word)) return word;
    if (known.size >= MAX_WORDS || !/^[A-Za-z][A-Za-z0-9_-]{0,40}$/.test(word)) return "other";
    known.add(word);
    return word;
  };
}

/** The sums of `counts` by their bounded words. */
function bounded(counts: Readonly<Record<string, number>>, word: (text: string) => string) {
  const sums = new Map<string, number>();
  for (const [text, count] of Object.entries(counts)) {
    const key = word(text);
    sums.set(key, (sums.get(key) ?? 0) + count);
  }
  return sums;
}

export class PoolMetrics implements Meter, CallMeter {
  readonly #registry = new Registry();
  readonly #steps = this.#histogram("sandmesh_pool_step_seconds", "Each step of a sandbox's life", ["step"]);
  readonly #acquires = this.#histogram("sandmesh_pool_acquire_seconds", "From the request to the grant", []);
  readonly #paced = this.#counter("sandmesh_pool_pace_decisions_total", "Whether the next create may begin", [
    "decision",
  ]);
  readonly #calls = this.#histogram("sandmesh_provider_call_seconds", "Calls to a provider", [
    "provider",
    "call",
    "result",
  ]);
  readonly #writes = this.#histogram(
    "sandmesh_pool_record_write_seconds",
    "Writes of records, until they are durable",
    ["record", "result"],
    WRITE_BUCKETS,
  );
  readonly #result = boundedWords();

  constructor() {
    const labels = { version, bun: Bun.version };
    this.#gauge("sandmesh_build_info", "1, with the versions as labels", ["version", "bun"]).set(labels, 1);
    measureProcess(this.#registry);
  }

  get contentType(): string {
    return this.#registry.contentType;
  }

  /** Prometheus' text format, 0.0.4. */
  render(): Promise<string> {
    return this.#registry.metrics();
  }

  step(step: Step, ms: number): void {
    this.#steps.observe({ step }, Math.max(0, ms) / 1000);
  }

  acquired(ms: number): void {
    this.#acquires.observe(Math.max(0, ms) / 1000);
  }

  paced(decision: PaceDecision): void {
    this.#paced.inc({ decision });
  }

  called(provider: string, call: ProviderCall, result: string, ms: number): void {
    this.#calls.observe({ provider, call, result: this.#result(result) }, ms / 1000);
  }

  wrote(record: RecordWrite, result: string, ms: number): void {
    this.#writes.observe({ record, result: this.#result(result) }, ms / 1000);
  }

  /** From now on what `pool` says of itself is asked at each scrape. */
  watch(pool: Pool, providers: readonly Provider[]): void {
    this.#watchStanding(pool);
    this.#watchCounters(pool);
    this.#watchRequests(providers);
  }

  #watchStanding(pool: Pool): void {
    const now = (name: string, help: string, read: (standing: ReturnType<Pool["standing"]>) => number) =>
      this.#gauge(name, help, [], (gauge) => gauge.set(read(pool.standing())));
    now("sandmesh_pool_ready", "1 while it can answer", ({ notReady }) => (notReady === undefined ? 1 : 0));
    now("sandmesh_pool_nats_connected", "1 while NATS is there", ({ connected }) => Number(connected));
    now("sandmesh_pool_draining", "1 while it takes no new acquires", ({ draining }) => Number(draining));
    now("sandmesh_pool_queue_length", "Acquires that have no sandbox yet", ({ queued }) => queued);
    now(
      "sandmesh_pool_queue_oldest_wait_seconds",
      "How long the oldest of them has waited",
      ({ oldestWaitMs }) => oldestWaitMs / 1000,
    );
    now("sandmesh_pool_starting_sandboxes", "Not yet given to anyone", ({ starting }) => starting);
    now("sandmesh_pool_starting_limit", "How many that may be (maxBooting)", ({ maxBooting }) => maxBooting);
    now("sandmesh_pool_runs", "Runs that live", ({ runs }) => runs);
    now("sandmesh_pool_removals_running", "Sandboxes under removal", ({ removing }) => removing);
    this.#gauge("sandmesh_pool_sandboxes", "Sandboxes in each state", ["state"], (gauge) => {
      for (const [state, count] of Object.entries(pool.counters.states)) gauge.set({ state }, count);
    });
  }

  #watchCounters({ counters }: Pool): void {
    const total = (name: string, help: string, read: () => number) =>
      this.#counter(name, help, [], (counter) => counter.inc(read()));
    total("sandmesh_pool_acquires_total", "Acquires taken in, each once", () => counters.acquires);
    total("sandmesh_pool_grants_total", "Grants sent, also again", () => counters.granted);
    total("sandmesh_pool_remove_failures_total", "Removals to be repeated", () => counters.removeFailures);
    total("sandmesh_pool_orphans_removed_total", "Found without a record", () => counters.orphansRemoved);
    total("sandmesh_pool_refused_replies_total", "Foreign reply subjects", () => counters.refusedReplies);
    const by = (name: string, help: string, label: string, counts: Readonly<Record<string, number>>) => {
      const word = boundedWords();
      this.#counter(name, help, [label], (counter) => {
        for (const [key, count] of bounded(counts, word)) counter.inc({ [label]: key }, count);
      });
    };
    by("sandmesh_pool_ended_total", "Sandboxes by the word that ended them", "reason", counters.ended);
    by("sandmesh_pool_errors_total", "Answers that were errors", "code", counters.errors);
  }

  #watchRequests(providers: readonly Provider[]): void {
    const help = "Requests to what is behind a provider: all sent, and of these throttled and failed";
    this.#counter("sandmesh_provider_requests_total", help, ["provider", "what"], (counter) => {
      for (const { name, requests } of providers) {
        for (const [what, count] of Object.entries(requests ?? {})) {
          counter.inc({ provider: name, what }, count);
        }
      }
    });
  }

  #histogram(name: string, help: string, labelNames: string[], buckets = STEP_BUCKETS): Histogram {
    return new Histogram({ name, help, labelNames, buckets, registers: [this.#registry] });
  }

  #gauge(name: string, help: string, labelNames: string[], read?: (gauge: Gauge) => void): Gauge {
    const gauge: Gauge = new Gauge({
      name,
      help,
      labelNames,
      registers: [this.#registry],
      ...(read === undefined ? {} : { collect: () => read(gauge) }),
    });
    return gauge;
  }

  /** With `read`: the count is kept elsewhere, and taken over at each scrape. */
  #counter(name: string, help: string, labelNames: string[], read?: (counter: Counter) => void): Counter {
    const counter: Counter = new Counter({
      name,
      help,
      labelNames,
      registers: [this.#registry],
      ...(read === undefined
        ? {}
        : {
            collect: () => {
              counter.reset();
              read(counter);
            },
          }),
    });
    return counter;
  }
}
