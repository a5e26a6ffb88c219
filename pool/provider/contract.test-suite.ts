// The suite that every provider must pass: `describeProvider("local", makeHarness)` from its own test file.
import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { ImageError, randomName, type SandboxSpec, UnsupportedError } from "../../broker/contract/index.ts";
import { until as waitUntil } from "../../broker/server/testing.ts";
import type { CreateRequest, Provider, ProviderEvent, Removed } from "./provider.ts";

export interface ProviderHarness {
  provider: Provider;
  /** A spec that works, as cheap as there is. */
  spec: SandboxSpec;
  /** An image that does not exist here. */
  badImage: string;
  /** Something the provider cannot do, and the field that it must name. */
  unsupported: { spec: Partial<SandboxSpec>; field: string };
  /** Completes a request: bootstrap and the like. */
  request(sandbox: string, spec: SandboxSpec, maxLifeMs: number): CreateRequest;
  /** Ends the sandbox's daemon, as a crash would. */
  crash(sandbox: string): Promise<void>;
  /** What is still there of anything, in words; empty where nothing is. Not asked of the provider's records. */
  leftBehind(): Promise<string[]>;
  /** The pool restarted: `provider` was closed, another one takes over what there is. */
  restart(): Promise<Provider>;
  /** Removes everything, also after a failed test. */
  close(): Promise<void>;
  /** How long one call may take, where the provider is not quick; default 30 s. */
  deadlineMs?: number;
}

const DEADLINE_MS = 30_000;
const LONG_LIFE_MS = 600_000;

/** Waits for a condition, as long as a provider may take. */
export async function until(what: string, holds: () => boolean | Promise<boolean>): Promise<void> {
  await waitUntil(what, holds, DEADLINE_MS, 10);
}

export function describeProvider(name: string, makeHarness: () => Promise<ProviderHarness>): void {
  describe(`provider contract: ${name}`, () => {
    let harness: ProviderHarness;
    let provider: Provider;
    const signal = () => AbortSignal.timeout(harness.deadlineMs ?? DEADLINE_MS);
    const newName = () => `sb-${randomName(8)}`;
    const create = (sandbox: string, spec = harness.spec, maxLifeMs = LONG_LIFE_MS) =>
      provider.create(harness.request(sandbox, spec, maxLifeMs), signal());
    const listed = async (sandbox: string) =>
      (await provider.list(signal())).filter((entry) => entry.sandbox === sandbox);
    const removeAll = (all: readonly Removed[]) =>
      provider.removeMany?.(all, signal()) ??
      all.map(({ sandbox, uid }) => provider.remove(sandbox, uid, signal()));
    const nothingLeft = async () => expect(await harness.leftBehind()).toEqual([]);
    const failureOf = async (work: Promise<unknown>): Promise<unknown> =>
      work.then(
        () => new Error("it succeeded"),
        (error: unknown) => error,
      );

    beforeEach(async () => {
      harness = await makeHarness();
      provider = harness.provider;
    });
    afterEach(async () => {
      await harness.close();
    });

    test("a created sandbox is listed once, running, with its uid and tenant", async () => {
      const sandbox = newName();
      const { uid } = await create(sandbox);
      await until("running", async () => (await listed(sandbox))[0]?.phase === "running");
      const { tenant } = harness.request(sandbox, harness.spec, LONG_LIFE_MS);
      expect(await listed(sandbox)).toEqual([{ sandbox, tenant, uid, phase: "running" }]);
    });

    test("creating the same name again, at once or later, makes no second sandbox", async () => {
      const sandbox = newName();
      const made = await Promise.all([create(sandbox), create(sandbox), create(sandbox)]);
      made.push(await create(sandbox));
      expect(new Set(made.map(({ uid }) => uid)).size).toBe(1);
      expect(await listed(sandbox)).toHaveLength(1);
      await provider.remove(sandbox, undefined, signal());
      await nothingLeft();
    });

    test("remove leaves nothing, and can be repeated", async () => {
      const sandbox = newName();
      const { uid } = await create(sandbox);
      await Promise.all([provider.remove(sandbox, uid, signal()), provider.remove(sandbox, uid, signal())]);
      expect(await listed(sandbox)).toEqual([]);
      await nothingLeft();
      await provider.remove(sandbox, uid, signal());
    });

    test("removing what never was succeeds", async () => {
      await provider.remove(newName(), undefined, signal());
      await provider.remove(newName(), "no-such-uid", signal());
    });

    test("remove with another's uid does not touch the sandbox", async () => {
      const sandbox = newName();
      const { uid } = await create(sandbox);
      await provider.remove(sandbox, `${uid}0`, signal());
      expect((await listed(sandbox)).map((entry) => entry.uid)).toEqual([uid]);
    });

    test("an image that does not exist is an ImageError, by validate and by create, and leaves nothing", async () => {
      const spec = { ...harness.spec, image: harness.badImage };
      expect(await failureOf(provider.validate(spec))).toBeInstanceOf(ImageError);
      const sandbox = newName();
      expect(await failureOf(create(sandbox, spec))).toBeInstanceOf(ImageError);
      await provider.remove(sandbox, undefined, signal());
      await nothingLeft();
    });

    test("what it cannot do is an UnsupportedError that names the field, and leaves nothing", async () => {
      const spec = { ...harness.spec, ...harness.unsupported.spec };
      for (const work of [provider.validate(spec), create(newName(), spec)]) {
        const error = await failureOf(work);
        expect(error).toBeInstanceOf(UnsupportedError);
        if (error instanceof UnsupportedError) expect(error.field).toBe(harness.unsupported.field);
      }
      await nothingLeft();
    });

    test("a spec that works is not refused", async () => {
      await provider.validate(harness.spec);
    });

    test("a create that is aborted midway leaves nothing once removed", async () => {
      const work = Array.from({ length: 8 }, async (_, i) => {
        const sandbox = newName();
        const stop = new AbortController();
        if (i === 0) stop.abort();
        const creating = provider.create(harness.request(sandbox, harness.spec, LONG_LIFE_MS), stop.signal);
        const outcome = failureOf(creating);
        await Bun.sleep(i);
        stop.abort();
        await outcome;
        await provider.remove(sandbox, undefined, signal());
      });
      await Promise.all(work);
      expect(await provider.list(signal())).toEqual([]);
      await nothingLeft();
    });

    test("remove during create wins", async () => {
      const sandbox = newName();
      const outcome = failureOf(create(sandbox));
      await provider.remove(sandbox, undefined, signal());
      await outcome;
      await provider.remove(sandbox, undefined, signal());
      expect(await listed(sandbox)).toEqual([]);
      await nothingLeft();
    });

    test("a daemon that dies is told as lost, once, and is not listed as running", async () => {
      const events: ProviderEvent[] = [];
      provider.watch((event) => events.push(event));
      const sandbox = newName();
      const { uid } = await create(sandbox);
      await harness.crash(sandbox);
      await until("lost", () => events.some((event) => event.type === "lost"));
      const lost = events.filter((event) => event.type === "lost");
      expect(lost).toMatchObject([{ sandbox, uid, reason: "daemon_died" }]);
      expect((await listed(sandbox)).some((entry) => entry.phase === "running")).toBe(false);
      await provider.remove(sandbox, uid, signal());
      await nothingLeft();
    });

    test("a sandbox that we remove is not told as lost; another that dies after it is", async () => {
      const events: ProviderEvent[] = [];
      provider.watch((event) => events.push(event));
      const [first, second] = [newName(), newName()];
      await Promise.all([create(first), create(second)]);
      await provider.remove(first, undefined, signal());
      await harness.crash(second);
      await until("lost", () => events.some((e) => e.type === "lost" && e.sandbox === second));
      expect(events.filter((e) => e.type === "lost" && e.sandbox === first)).toEqual([]);
    });

    test("a watch that was ended hears nothing more", async () => {
      const [ended, live]: [ProviderEvent[], ProviderEvent[]] = [[], []];
      provider.watch((event) => ended.push(event))();
      provider.watch((event) => live.push(event));
      const sandbox = newName();
      await create(sandbox);
      await harness.crash(sandbox);
      await until("lost", () => live.some((event) => event.type === "lost"));
      expect(ended).toEqual([]);
    });

    test("no sandbox outlives its longest life", async () => {
      const sandbox = newName();
      await create(sandbox, harness.spec, 300);
      await until("its end", async () => !(await listed(sandbox)).some((e) => e.phase === "running"));
      await provider.remove(sandbox, undefined, signal());
      await nothingLeft();
    });

    test("a restarted pool finds its sandboxes, hears of their end, and can remove them", async () => {
      const [first, second] = [newName(), newName()];
      const made = await Promise.all([create(first), create(second)]);
      await provider.close();
      provider = await harness.restart();
      const found = new Map((await provider.list(signal())).map((e) => [e.sandbox, e.uid]));
      expect([found.get(first), found.get(second)]).toEqual(made.map(({ uid }) => uid));
      const events: ProviderEvent[] = [];
      provider.watch((event) => events.push(event));
      expect((await create(first)).uid).toBe(made[0]?.uid ?? "");
      await harness.crash(first);
      await until("lost", () => events.some((event) => event.type === "lost" && event.sandbox === first));
      await Promise.all([first, second].map((sandbox) => provider.remove(sandbox, undefined, signal())));
      expect(await provider.list(signal())).toEqual([]);
      await nothingLeft();
    });

    test("32 at once, and their removal at once, leave nothing", async () => {
      const names = Array.from({ length: 32 }, newName);
      const made = await Promise.all(names.map((sandbox) => create(sandbox)));
      expect(new Set(made.map(({ uid }) => uid)).size).toBe(32);
      expect(await provider.list(signal())).toHaveLength(32);
      await Promise.all(names.map((sandbox, i) => provider.remove(sandbox, made[i]?.uid, signal())));
      expect(await provider.list(signal())).toEqual([]);
      await nothingLeft();
    });

    test("many removed together are answered for each, as if alone: what is there is gone by then, what never was is no fault, another's stays", async () => {
      const names = Array.from({ length: 6 }, newName);
      const made = await Promise.all(names.map((sandbox) => create(sandbox)));
      const [kept = ""] = names;
      const all = names.map((sandbox, i) => {
        const uid = made[i]?.uid;
        return { sandbox, uid: sandbox === kept ? `${uid}0` : uid };
      });
      all.push({ sandbox: newName(), uid: undefined });
      for (const _ of ["once", "again"]) {
        const answers = removeAll(all);
        expect(answers).toHaveLength(all.length);
        const thereAfter = answers.map(async (answer, i) => {
          await answer;
          return (await listed(all[i]?.sandbox ?? "")).map(({ sandbox }) => sandbox);
        });
        expect((await Promise.all(thereAfter)).flat()).toEqual([kept]);
      }
      await provider.remove(kept, undefined, signal());
      await nothingLeft();
    });

    test("what is not isolated is said in words", () => {
      const words = provider.notIsolated(harness.spec);
      expect(words.every((word) => word.length > 0)).toBe(true);
    });
  });
}
