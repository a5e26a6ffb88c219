// Removals with a provider that ends each when the test says so, and with a clock of the test's own.
import { expect, test } from "bun:test";
import { ProviderError } from "../../broker/contract/index.ts";
import { type PoolLimits, poolLimits } from "../config.ts";
import { Deadlines } from "../reaper/deadlines.ts";
import { Removals, type Remover } from "./removals.ts";

/** Notes what it is asked for; each goes on until the test ends it. */
class Played implements Remover {
  readonly name: string;
  readonly maxRemoving?: number;
  /** The sandboxes of each call, in their order. */
  readonly calls: string[][] = [];
  readonly aborted: string[] = [];
  readonly #ends = new Map<string, ReturnType<typeof Promise.withResolvers<void>>>();

  constructor(name = "played", maxRemoving?: number) {
    this.name = name;
    if (maxRemoving !== undefined) this.maxRemoving = maxRemoving;
  }

  get underWay(): number {
    return this.#ends.size;
  }

  remove(sandbox: string, _uid: string | undefined, signal: AbortSignal): Promise<void> {
    this.calls.push([sandbox]);
    return this.#begin(sandbox, signal);
  }

  removeMany(sandboxes: readonly { sandbox: string }[], signal: AbortSignal): Promise<void>[] {
    this.calls.push(sandboxes.map(({ sandbox }) => sandbox));
    return sandboxes.map(({ sandbox }) => this.#begin(sandbox, signal));
  }

  #begin(sandbox: string, signal: AbortSignal): Promise<void> {
    const end = Promise.withResolvers<void>();
    this.#ends.set(sandbox, end);
    signal.addEventListener("abort", () => {
      if (this.#ends.has(sandbox)) this.aborted.push(sandbox);
      this.end(sandbox, new Error("aborted"));
    });
    return end.promise;
  }

  end(sandbox: string, error?: Error): void {
    const end = this.#ends.get(sandbox);
    this.#ends.delete(sandbox);
    if (error === undefined) end?.resolve();
    else end?.reject(error);
  }
}

/** Of some that no removeMany takes together. */
class OneByOne implements Remover {
  readonly name = "one by one";
  readonly #played = new Played();
  readonly calls = this.#played.calls;

  remove(sandbox: string, uid: string | undefined, signal: AbortSignal): Promise<void> {
    return this.#played.remove(sandbox, uid, signal);
  }
}

class Bench {
  nowMs = 1_000;
  /** What became of each, in the order of their ends. */
  readonly done: (readonly [string, string])[] = [];
  readonly #now = () => this.nowMs;
  readonly #deadlines = new Deadlines((key) => this.removals.timeOut(key), this.#now);
  readonly removals: Removals;

  constructor(limits: Partial<PoolLimits>) {
    this.removals = new Removals({
      limits: poolLimits(limits),
      deadlines: this.#deadlines,
      now: this.#now,
    });
  }

  async add(provider: Remover, sandboxes: readonly string[], alone = false): Promise<void> {
    for (const sandbox of sandboxes) {
      this.removals.add(provider, {
        sandbox,
        uid: undefined,
        alone,
        done: (failure) => this.done.push([sandbox, failure?.reason ?? failure?.code ?? "gone"]),
      });
    }
    await settled();
  }

  async end(provider: Played, sandboxes: readonly string[], error?: Error): Promise<void> {
    for (const sandbox of sandboxes) provider.end(sandbox, error);
    await settled();
  }

  async at(ms: number): Promise<void> {
    this.nowMs = 1_000 + ms;
    this.#deadlines.run();
    await settled();
  }

  [Symbol.dispose](): void {
    this.#deadlines.close();
  }
}

/** All that goes on without a timer has gone on. */
const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
const names = (from: number, count: number): string[] =>
  Array.from({ length: count }, (_, i) => `sb-${from + i}`);
const sizes = ({ calls }: Played): number[] => calls.map(({ length }) => length);

test("each of a batch is done when it is gone, whatever the others of it do", async () => {
  using bench = new Bench({});
  const provider = new Played();
  await bench.add(provider, names(0, 3));
  expect(provider.calls).toEqual([names(0, 3)]);
  await bench.end(provider, ["sb-1"]);
  expect(bench.done).toEqual([["sb-1", "gone"]]);
  expect(bench.removals.running).toBe(2);
  await bench.end(provider, ["sb-2", "sb-0"]);
  expect(bench.done.map(([sandbox]) => sandbox)).toEqual(["sb-1", "sb-2", "sb-0"]);
  expect(bench.removals.running).toBe(0);
});

test("what fails of a batch fails alone", async () => {
  using bench = new Bench({});
  const provider = new Played();
  await bench.add(provider, names(0, 3));
  await bench.end(provider, ["sb-1"], new ProviderError("it does not go", { reason: "stuck" }));
  expect(bench.done).toEqual([["sb-1", "stuck"]]);
  expect(provider.aborted).toEqual([]);
  await bench.end(provider, ["sb-0", "sb-2"]);
  expect(bench.done.slice(1)).toEqual([
    ["sb-0", "gone"],
    ["sb-2", "gone"],
  ]);
});

test("so many sandboxes are under removal at once, whatever the calls; and what has to wait goes in full batches", async () => {
  using bench = new Bench({ maxRemoving: 250 });
  const provider = new Played();
  await bench.add(provider, names(0, 430));
  expect(sizes(provider)).toEqual([100, 100]);
  expect(bench.removals.running).toBe(200);
  await bench.end(provider, names(0, 49));
  expect(sizes(provider)).toEqual([100, 100]);
  await bench.end(provider, names(49, 1));
  expect(sizes(provider)).toEqual([100, 100, 100]);
  expect(provider.underWay).toBe(250);
  await bench.end(provider, names(50, 150));
  expect(sizes(provider)).toEqual([100, 100, 100, 100, 30]);
});

test("one that is stuck holds its own place and no other's", async () => {
  using bench = new Bench({ maxRemoving: 100 });
  const provider = new Played();
  await bench.add(provider, names(0, 160));
  expect(sizes(provider)).toEqual([100]);
  await bench.end(provider, names(1, 99));
  expect(sizes(provider)).toEqual([100, 60]);
  expect(provider.underWay).toBe(61);
});

test("a batch is given up when none of it has ended for the time limit, and not as long as it goes on", async () => {
  using bench = new Bench({ removeTimeoutMs: 60_000 });
  const provider = new Played();
  await bench.add(provider, names(0, 4));
  await bench.at(50_000);
  await bench.end(provider, ["sb-0"]);
  await bench.at(100_000);
  await bench.end(provider, ["sb-1"]);
  await bench.at(159_999);
  expect(bench.done).toEqual([
    ["sb-0", "gone"],
    ["sb-1", "gone"],
  ]);
  await bench.at(160_000);
  expect(provider.aborted).toEqual(["sb-2", "sb-3"]);
  expect(bench.done.slice(2)).toEqual([
    ["sb-2", "remove_timeout"],
    ["sb-3", "remove_timeout"],
  ]);
  expect(bench.removals.running).toBe(0);
});

test("a second try goes alone, and however many of these are stuck, half of the places are for others", async () => {
  using bench = new Bench({ maxRemoving: 10 });
  const provider = new Played();
  await bench.add(provider, names(0, 20), true);
  expect(provider.calls).toEqual(names(0, 5).map((sandbox) => [sandbox]));
  await bench.add(provider, names(100, 5));
  expect(provider.calls.at(-1)).toEqual(names(100, 5));
  await bench.end(provider, ["sb-3"]);
  expect(provider.calls.at(-1)).toEqual(["sb-5"]);
  expect(bench.removals.running).toBe(10);
});

test("others go beside what is stuck, also where it leaves no room for a full batch", async () => {
  using bench = new Bench({ maxRemoving: 100 });
  const provider = new Played();
  await bench.add(provider, names(0, 2), true);
  await bench.add(provider, names(100, 250));
  expect(sizes(provider)).toEqual([1, 1, 98]);
  await bench.end(provider, names(101, 48));
  expect(sizes(provider)).toEqual([1, 1, 98]);
  await bench.end(provider, names(149, 2));
  expect(sizes(provider)).toEqual([1, 1, 98, 50]);
  // One that is stuck in its first try, too.
  await bench.end(provider, names(151, 97));
  expect(sizes(provider)).toEqual([1, 1, 98, 50, 97]);
});

test("a provider that ends none keeps no other's waiting", async () => {
  using bench = new Bench({ maxRemoving: 100 });
  const [hangs, goes] = [new Played("hangs"), new Played("goes")];
  await bench.add(hangs, names(0, 500));
  await bench.add(goes, names(500, 100));
  expect([sizes(hangs), sizes(goes)]).toEqual([[100], [100]]);
});

test("a provider is asked for no more at once than it says that it bears", async () => {
  using bench = new Bench({ maxRemoving: 1_000 });
  const provider = new Played("small", 8);
  await bench.add(provider, names(0, 20));
  expect(sizes(provider)).toEqual([8]);
});

test("who removes one by one is asked for each as soon as there is a place", async () => {
  using bench = new Bench({ maxRemoving: 3 });
  const provider = new OneByOne();
  await bench.add(provider, names(0, 5));
  expect(provider.calls).toEqual(names(0, 3).map((sandbox) => [sandbox]));
});
