// Going through all connections of servers that change meanwhile.
import { expect, test } from "bun:test";
import type { OpenConnection } from "../../broker/server/index.ts";
import { type Answers, OVERLAP, PAGE, sweep } from "./sweep.ts";

const many = (server: string, count: number): OpenConnection[] =>
  Array.from({ length: count }, (_, i) => ({
    server,
    number: 3 * i + 1,
    startedAt: i,
    said: 0,
    user: `${server}${i}`,
  }));

/** Servers that are asked for pages; `meanwhile` is called before each answer. */
function asked(servers: Map<string, OpenConnection[]>, meanwhile: (nth: number) => void = () => {}) {
  const pages: number[] = [];
  const ask = async (question: Uint8Array): Promise<Answers> => {
    const { offset, limit } = JSON.parse(Buffer.from(question).toString());
    meanwhile(pages.length);
    pages.push(offset);
    return new Map([...servers].map(([server, all]) => [server, all.slice(offset, offset + limit)]));
  };
  return { ask, pages };
}

test("all of several servers are found once each, in pages", async () => {
  const servers = new Map([
    ["A", many("A", 3 * PAGE)],
    ["B", many("B", 5)],
    ["C", []],
  ]);
  const { ask, pages } = asked(servers);
  const { open, complete } = await sweep(ask, () => true);
  expect([...open.keys()].toSorted()).toEqual(
    [...servers.values()]
      .flat()
      .map(({ user }) => `${user}`)
      .toSorted(),
  );
  expect([...open.values()].every(({ length }) => length === 1)).toBe(true);
  expect([...complete].toSorted()).toEqual(["A", "B", "C"]);
  expect(pages.length).toBe(4);
});

test("two on one key are found, also on different servers", async () => {
  const [first, second] = [many("A", 1), many("B", 1)].map(([one]) => ({ ...one, user: "key" }));
  const servers = new Map([
    ["A", [first as OpenConnection]],
    ["B", [second as OpenConnection]],
  ]);
  const { open } = await sweep(asked(servers).ask, () => true);
  expect(open.get("key")?.map(({ server }) => server)).toEqual(["A", "B"]);
});

test("some that end between two pages hide none behind them; where so many do that it might, nothing is complete", async () => {
  for (const ending of [OVERLAP - 1, OVERLAP + 1, 2 * PAGE]) {
    const all = many("A", 2 * PAGE + 10);
    const { ask } = asked(new Map([["A", all]]), (nth) => {
      if (nth === 1) all.splice(0, ending);
    });
    const { open, complete } = await sweep(ask, () => true);
    const hidden = all.filter(({ user }) => !open.has(`${user}`)).length;
    expect([ending, complete.has("A")]).toEqual([ending, ending < OVERLAP]);
    if (ending < OVERLAP) expect(hidden).toBe(0);
    else expect(hidden).toBeGreaterThan(0);
  }
});

test("a server that falls silent, or comes, in the middle is not complete; the others are", async () => {
  const servers = new Map([
    ["A", many("A", 2 * PAGE)],
    ["B", many("B", 2 * PAGE)],
  ]);
  const { ask } = asked(servers, (nth) => {
    if (nth !== 1) return;
    servers.delete("B");
    servers.set("C", many("C", 10));
  });
  expect([...(await sweep(ask, () => true)).complete]).toEqual(["A"]);
});

test("where nobody answers it says so, and does not ask again by itself", async () => {
  const { ask, pages } = asked(new Map());
  const { answered, complete } = await sweep(ask, () => true);
  expect([answered, complete.size, pages.length]).toEqual([false, 0, 1]);
});
