// Removals on an API server and a watch whose every word is the test's own.
import { afterEach, expect, test } from "bun:test";
import { ProviderError } from "../../../broker/contract/index.ts";
import { until } from "../../../broker/server/testing.ts";
import { Informer } from "./informer.ts";
import type { PodView } from "./observe.ts";
import { Removal } from "./removal.ts";
import { Teller } from "./tell.ts";
import { changed, podView, Script, settingsOf, silent } from "./testing.ts";

interface Asked {
  names: readonly string[];
  answer(): void;
  refuse(error: Error): void;
}

/** Notes what is to be deleted; each request waits for the test's answer, or is cut off by its caller. */
class Api {
  readonly asked: Asked[] = [];

  #ask(names: readonly string[], signal: AbortSignal): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    signal.addEventListener("abort", () => reject(new Error("cut off")));
    this.asked.push({ names, answer: resolve, refuse: reject });
    return promise;
  }

  async delete(sandbox: string, _uid: string | undefined, _grace: number | undefined, signal: AbortSignal) {
    await this.#ask([sandbox], signal);
    return `uid-${sandbox}`;
  }

  deleteAll(names: readonly string[], _label: string, signal: AbortSignal): Promise<void> {
    return this.#ask(names, signal);
  }

  get names(): (readonly string[])[] {
    return this.asked.map(({ names }) => names);
  }
}

const informers: Informer[] = [];
afterEach(async () => {
  await Promise.all(informers.splice(0).map((informer) => informer.stop()));
});

const pod = (name: string, more: object = {}): PodView =>
  podView({ metadata: { name, uid: `uid-${name}`, ...more } });
const GOING = { deletionTimestamp: "2026-01-01T00:00:00Z" };
const ALL = ["sb-1", "sb-2", "sb-3"];

async function begin() {
  const [api, script, settings] = [new Api(), new Script(), settingsOf()];
  script.items = ALL.map((name) => pod(name));
  const teller = new Teller(settings);
  const informer = new Informer(script, silent, (change) => {
    if (change.type === "gone") removal.gone(change.pod.metadata.uid);
    teller.heed(change);
  });
  informers.push(informer);
  const creation = { has: () => false, ended: async () => undefined };
  const removal = new Removal({ settings, api, informer, teller, creation, log: silent });
  await informer.start();
  const state: Record<string, string> = {};
  const together = (names: readonly string[], signal: AbortSignal) => {
    const ends = removal.removeMany(
      names.map((sandbox) => ({ sandbox, uid: undefined })),
      signal,
    );
    const note = (name: string, word: string): void => {
      state[name] = word;
    };
    for (const [i, name] of names.entries()) {
      ends[i]?.then(
        () => note(name, "gone"),
        (error: unknown) => note(name, String(error)),
      );
    }
  };
  const going = async (...names: string[]) => {
    script.say(...names.map((name) => changed("MODIFIED", pod(name, GOING))));
    const isGoing = (name: string) => informer.get(name)?.metadata.deletionTimestamp !== undefined;
    await until("the watch", () => names.every(isGoing));
  };
  const gone = (...names: string[]) =>
    script.say(...names.map((name) => changed("DELETED", pod(name, GOING))));
  return { api, removal, state, together, going, gone };
}

const soon = () => AbortSignal.timeout(20_000);

test("of pods that are deleted by one request each is told when it is gone, before the request's answer", async () => {
  const { api, state, together, gone } = await begin();
  together(ALL, soon());
  await until("the request", () => api.asked.length > 0);
  expect(api.names).toEqual([ALL]);
  gone("sb-2");
  await until("its end", () => state["sb-2"] !== undefined);
  expect(state).toEqual({ "sb-2": "gone" });
  api.asked[0]?.answer();
  gone("sb-1", "sb-3");
  await until("their end", () => Object.keys(state).length === 3);
  expect(Object.values(state)).toEqual(["gone", "gone", "gone"]);
  expect(api.names).toEqual([ALL]);
});

test("what a grouped delete had reached when it was given up is not asked for again, what it had not is", async () => {
  const { api, removal, state, together, going, gone } = await begin();
  const stop = new AbortController();
  together(ALL, stop.signal);
  await until("the request", () => api.asked.length > 0);
  await going("sb-1", "sb-2");
  stop.abort();
  await until("all given up", () => Object.keys(state).length === 3);
  const again = ALL.map((name) => removal.remove(name, undefined, soon()));
  await until("the second request", () => api.asked.length > 1);
  api.asked[1]?.answer();
  gone(...ALL);
  await Promise.all(again);
  expect(api.names).toEqual([ALL, ["sb-3"]]);
});

test("what is on its way out is waited for and not named in another grouped delete", async () => {
  const { api, state, together, going, gone } = await begin();
  const stop = new AbortController();
  together(["sb-1", "sb-2"], stop.signal);
  await until("the request", () => api.asked.length > 0);
  await going("sb-1");
  stop.abort();
  await until("both given up", () => Object.keys(state).length === 2);
  together(ALL, soon());
  await until("the second request", () => api.asked.length > 1);
  expect(api.names[1]).toEqual(["sb-2", "sb-3"]);
  gone(...ALL);
  await until("their end", () => ALL.every((name) => state[name] === "gone"));
});

test("a grouped delete that fails in its middle fails what it has not reached; the rest goes", async () => {
  const { api, state, together, going, gone } = await begin();
  together(ALL, soon());
  await until("the request", () => api.asked.length > 0);
  await going("sb-1");
  api.asked[0]?.refuse(new ProviderError("the server gave up"));
  await until("two failures", () => Object.keys(state).length === 2);
  expect(Object.keys(state)).toEqual(["sb-2", "sb-3"]);
  gone("sb-1");
  await until("its end", () => state["sb-1"] === "gone");
  expect(state["sb-2"]).toContain("the server gave up");
});
