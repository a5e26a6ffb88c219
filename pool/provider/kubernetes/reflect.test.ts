// The reflector and the informer on a source whose every word is the test's own.
import { afterEach, expect, test } from "bun:test";
import { ProviderError } from "../../../broker/contract/index.ts";
import { until } from "../../../broker/server/testing.ts";
import { WatchRefused } from "./api/transport.ts";
import { type Change, Informer } from "./informer.ts";
import type { PodView } from "./observe.ts";
import { changed, podView, Script, silent } from "./testing.ts";

const pod = (name: string, version: string, uid = `uid-${name}`): PodView =>
  podView({ metadata: { name, uid, resourceVersion: version } });

const informers: Informer[] = [];
afterEach(async () => {
  await Promise.all(informers.splice(0).map((informer) => informer.stop()));
});

function informed(script: Script, now?: () => number) {
  const changes: string[] = [];
  const note = ({ type, pod: { metadata } }: Change) => changes.push(`${type} ${metadata.name}`);
  const informer = new Informer(script, silent, note, now);
  informers.push(informer);
  return { informer, changes };
}

test("a watch that breaks off goes on from the last version, by object or bookmark, without a list", async () => {
  const script = new Script();
  const { informer } = informed(script);
  await informer.start();
  script.say(changed("ADDED", pod("a", "11")), new Error("cut"));
  await until("the watch", () => script.asked.includes("watch 11"));
  script.say({ type: "BOOKMARK", version: "40" }, "end");
  await until("the watch", () => script.asked.includes("watch 40"));
  expect(script.asked).toEqual(["list", "watch 10", "watch 11", "watch 40"]);
});

test("where the server has forgotten the version, a list tells what went meanwhile", async () => {
  const script = new Script();
  script.items = [pod("a", "1"), pod("b", "2")];
  const { informer, changes } = informed(script);
  await informer.start();
  script.items = [pod("b", "50")];
  script.version = "60";
  script.say({ type: "ERROR", code: 410, message: "too old resource version" });
  await until("the watch", () => script.asked.includes("watch 60"));
  expect(changes).toEqual(["seen a", "seen b", "gone a", "seen b"]);
});

test("a watch that is refused, or says what cannot be read, is followed by a list and not by itself", async () => {
  for (const error of [new WatchRefused(410), new ProviderError("odd", { reason: "unreadable" })]) {
    const script = new Script();
    const { informer } = informed(script);
    await informer.start();
    script.version = "20";
    script.say(error);
    await until("the watch", () => script.asked.includes("watch 20"));
    expect(script.asked).toEqual(["list", "watch 10", "list", "watch 20"]);
  }
});

test("a watch that may have died without a word is begun anew where it stands", async () => {
  const script = new Script();
  let nowMs = 0;
  const { informer } = informed(script, () => nowMs);
  await informer.start();
  script.say(changed("ADDED", pod("a", "11")));
  await until("the watch", () => informer.get("a") !== undefined && script.asked.includes("watch 10"));
  nowMs = 10_000;
  informer.overdue();
  await until("the watch", () => script.asked.length === 3);
  // Not once more for each of thousands that wait.
  informer.overdue();
  script.say(changed("ADDED", pod("b", "12")));
  await until("the change", () => informer.get("b") !== undefined);
  expect(script.asked).toEqual(["list", "watch 10", "watch 11"]);
});

test("a watch that tells of others is not begun anew, however long one is waited for", async () => {
  const script = new Script();
  let nowMs = 0;
  const { informer } = informed(script, () => nowMs);
  await informer.start();
  for (const [name, version] of [
    ["a", "11"],
    ["b", "12"],
    ["c", "13"],
  ] as const) {
    nowMs += 9_000;
    script.say(changed("ADDED", pod(name, version)));
    await until("the change", () => informer.get(name) !== undefined);
    nowMs += 9_000;
    informer.overdue();
  }
  expect(script.asked).toEqual(["list", "watch 10"]);
});

test("a pod made while a list is under way is not taken for gone", async () => {
  const script = new Script();
  const { informer, changes } = informed(script);
  const { promise, resolve } = Promise.withResolvers<void>();
  script.listing = promise;
  const synced = informer.start();
  await until("the watch", () => script.asked.includes("list"));
  informer.add(pod("new", "9"));
  resolve();
  await synced;
  expect(informer.get("new")).toBeDefined();
  expect(changes).toEqual([]);
});

test("who waits for an end hears it: told before the delete was answered, after it, or only by a list", async () => {
  const script = new Script();
  script.items = ["a", "b", "c"].map((name) => pod(name, "1"));
  const { informer } = informed(script);
  await informer.start();
  const [before, after, listed] = ["a", "b", "c"].map((name) => informer.awaitGone(name));
  script.say(changed("DELETED", pod("a", "11")));
  await until("the change", () => informer.get("a") === undefined);
  before?.acked("uid-a");
  await before?.gone;
  after?.acked("uid-b");
  script.say(changed("DELETED", pod("b", "12")));
  await after?.gone;
  listed?.acked("uid-c");
  script.items = [];
  script.say({ type: "ERROR", code: 410, message: "" });
  await listed?.gone;
});

test("the end of an earlier pod of that name is not the end that is waited for", async () => {
  const script = new Script();
  script.items = [pod("a", "1", "uid-2")];
  const { informer } = informed(script);
  await informer.start();
  const end = informer.awaitGone("a");
  let gone = false;
  void end.gone.then(() => {
    gone = true;
  });
  end.acked("uid-2");
  script.say(changed("DELETED", pod("a", "11", "uid-1")), changed("ADDED", pod("b", "12")));
  await until("the change", () => informer.get("b") !== undefined);
  expect(gone).toBe(false);
  expect(informer.get("a")?.metadata.uid).toBe("uid-2");
  end.forget();
});
