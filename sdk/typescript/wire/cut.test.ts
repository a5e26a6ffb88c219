// What becomes of a question whose connection is cut while it waits: its answer may be lost. A sandbox played by the test.
import { expect, test } from "bun:test";
import { until } from "../../../broker/server/testing.ts";
import type { Sandbox } from "../mod.ts";
import { type Answer, played, SANDBOX } from "../testing/played.ts";

const HERE = { sandbox: SANDBOX, incarnation: "x", generation: 1 };
const HASH = { sha256: "0".repeat(64), size: 5 };

/** What may be asked again, what it is answered with, and what its caller gets of that. */
const AGAIN: [string, (box: Sandbox) => Promise<unknown>, Answer, unknown][] = [
  ["hash", (box) => box.files.sha256("a"), HASH, HASH],
  ["glob", (box) => box.files.glob("*"), { paths: ["a"], more: false }, ["a"]],
  ["search", (box) => box.files.search("a"), { matches: [], more: false }, { matches: [], more: false }],
  ["list", (box) => box.files.list("a"), { entries: [], more: false }, []],
];

test.each(AGAIN)(
  "%s, whose answer was lost with the connection, is asked again when that is back",
  async (verb, ask, answer, got) => {
    let lost = true;
    await using sandbox = await played((asked) => {
      if (asked.verb === "ping") return [HERE];
      return lost ? undefined : [answer];
    });
    const asked = ask(sandbox.mesh.sandbox(SANDBOX));
    const count = () => sandbox.asked.filter((each) => each.verb === verb).length;
    await until("it is asked", () => count() === 1);
    lost = false;
    sandbox.cut();
    expect(await asked).toEqual(got);
    expect(count()).toBe(2);
  },
  20_000,
);

test("a watch that waits for a change when the connection is cut hears of the next one at once", async () => {
  let changes: Answer[] | undefined;
  await using sandbox = await played((asked) => {
    if (asked.verb === "ping") return [HERE];
    if (sandbox.asked.filter(({ verb }) => verb === "watch").length === 1)
      return [{ cursor: "w.0", changes: [], overflow: false }];
    return changes;
  });
  const watching = sandbox.mesh.sandbox(SANDBOX).files.watch("/a")[Symbol.asyncIterator]();
  const next = watching.next();
  await until("it waits", () => sandbox.asked.filter(({ verb }) => verb === "watch").length === 2);
  changes = [{ cursor: "w.1", changes: [{ path: "b", kind: "changed" }], overflow: false }];
  sandbox.cut();
  expect((await next).value).toEqual({ path: "b", kind: "changed" });
  await watching.return?.();
}, 20_000);

test("a watch whose beginning was lost with the connection says that something may have changed meanwhile", async () => {
  let lost = true;
  await using sandbox = await played((asked) => {
    if (asked.verb === "ping") return [HERE];
    return lost ? undefined : [{ cursor: "w.0", changes: [], overflow: false }];
  });
  const watching = sandbox.mesh.sandbox(SANDBOX).files.watch("/a")[Symbol.asyncIterator]();
  const next = watching.next();
  await until("it is asked", () => sandbox.asked.some(({ verb }) => verb === "watch"));
  lost = false;
  sandbox.cut();
  expect((await next).value).toEqual({ path: "", kind: "overflow" });
  await watching.return?.();
}, 20_000);

test("what may not be asked twice is told that its answer may be lost, and where it was not it gets it", async () => {
  await using sandbox = await played((asked) => (asked.verb === "ping" ? [HERE] : undefined));
  const box = sandbox.mesh.sandbox(SANDBOX);
  const removing = ["a", "b"].map((path) => box.files.remove(path, { recursive: true }));
  const failure = removing[0]?.then(
    () => "done",
    (error: Error & { code: string }) => `${error.code}: ${error.message}`,
  );
  const asked = () => sandbox.asked.filter(({ verb }) => verb === "remove");
  await until("both are asked", () => asked().length === 2);
  sandbox.cut();
  box.files.stat("c").catch(() => undefined);
  await until("the connection is back", () => sandbox.asked.some(({ verb }) => verb === "stat"));
  sandbox.answer(asked()[1]?.reply ?? "", { done: true });
  await removing[1];
  expect(await failure).toMatch(
    /^connection_failed: the connection was lost and is back; the answer may be lost/,
  );
  expect(asked().length).toBe(2);
}, 30_000);
