import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { ConflictError, ConnectionError, InvalidRequestError } from "../contract/index.ts";
import { type TestServer, testServer, until } from "../server/testing.ts";
import type { Link } from "./link.ts";
import { MAX_RECORD_BYTES, openRecords, type Records } from "./records.ts";
import { MAX_IN_FLIGHT } from "./writer.ts";

let server: TestServer;
let pool: Link;
beforeAll(async () => {
  server = await testServer();
  pool = await server.pool();
});
afterAll(() => server.close());

let count = 0;
const newStream = () => ({ stream: `REC_${++count}`, subjectPrefix: `rec.v1.r${count}` });
const body = (text: string) => Buffer.from(text);
const textsOf = async (records: Records) =>
  Object.fromEntries([...(await records.load())].map(([key, data]) => [key, Buffer.from(data).toString()]));

test("what was put for a time goes by itself, and what was put anew stays", async () => {
  const records = await openRecords(pool, newStream());
  await Promise.all([
    records.put("goes", body("1"), { ttlMs: 1_000 }),
    records.put("stays", body("2"), { ttlMs: 1_000 }),
    records.put("stays", body("3")),
  ]);
  expect(await textsOf(records)).toEqual({ goes: "1", stays: "3" });
  await until("it is gone", async () => Object.keys(await textsOf(records)).length === 1);
  expect(await textsOf(records)).toEqual({ stays: "3" });
  await records.close();
});

test("what was put is loaded by the next opener: the newest of each key, and nothing that was deleted", async () => {
  const where = newStream();
  const first = await openRecords(pool, where);
  await Promise.all([
    first.put("a", body("1")),
    first.put("b.c", body("2")),
    first.put("a", body("3")),
    first.put("gone", body("4")),
    first.delete("gone"),
    first.delete("never-was"),
    first.put("empty", body("")),
  ]);
  await first.close();
  await expect(first.put("a", body("5"))).rejects.toBeInstanceOf(ConnectionError);
  const second = await openRecords(pool, where);
  expect(await textsOf(second)).toEqual({ a: "3", "b.c": "2", empty: "" });
  await second.close();
});

test("thousands of keys are loaded whole, also while they are written", async () => {
  const records = await openRecords(pool, newStream());
  const keys = Array.from({ length: 3_000 }, (_, i) => `sb-${i}`);
  await Promise.all(keys.map((key) => records.put(key, body("old"))));
  const writing = Promise.all(keys.map((key) => records.put(key, body("new"))));
  const loaded = await records.load();
  await writing;
  expect(loaded.size).toBe(keys.length);
  expect(new Set(Object.values(await textsOf(records)))).toEqual(new Set(["new"]));
  await records.close();
});

test("keys and sizes that do not fit are refused, and harm nothing", async () => {
  const records = await openRecords(pool, newStream());
  for (const key of ["", "a.", ".a", "a b", "a*", ">", "_fence", "A", "a..b", "a\r\nb"]) {
    await expect(records.put(key, body("x"))).rejects.toBeInstanceOf(InvalidRequestError);
    await expect(records.delete(key)).rejects.toBeInstanceOf(InvalidRequestError);
  }
  await expect(records.put("a", new Uint8Array(MAX_RECORD_BYTES + 1))).rejects.toBeInstanceOf(
    InvalidRequestError,
  );
  await records.put("a", new Uint8Array(MAX_RECORD_BYTES));
  expect((await records.load()).get("a")?.length).toBe(MAX_RECORD_BYTES);
  await records.close();
  await expect(openRecords(pool, { stream: "x.y", subjectPrefix: "rec.v1.x" })).rejects.toBeInstanceOf(
    InvalidRequestError,
  );
  await expect(openRecords(pool, { stream: "X", subjectPrefix: "sbx.v1" })).rejects.toBeInstanceOf(
    InvalidRequestError,
  );
});

describe("a stale writer", () => {
  test("is refused at its first write after another has opened, and at every later one", async () => {
    const where = newStream();
    const stale = await openRecords(pool, where);
    await stale.put("a", body("mine"));
    const next = await openRecords(await server.pool(), where);
    await expect(stale.put("a", body("stale"))).rejects.toBeInstanceOf(ConflictError);
    await expect(stale.put("b", body("stale"))).rejects.toBeInstanceOf(ConflictError);
    await next.put("c", body("ours"));
    expect(await textsOf(next)).toEqual({ a: "mine", c: "ours" });
    await Promise.all([stale.close(), next.close()]);
  });

  test("hears of the next one at once, without a write of its own, and a check says the same", async () => {
    const where = newStream();
    const stale = await openRecords(pool, where);
    await stale.verify();
    const next = await openRecords(await server.pool(), where);
    expect(await stale.poisoned).toMatchObject({ code: "conflict", reason: "fenced" });
    await expect(stale.verify()).rejects.toBeInstanceOf(ConflictError);
    await next.verify();
    await next.put("a", body("ours"));
    await Promise.all([stale.close(), next.close()]);
  });

  test("never writes after another has opened, however many of its writes are on their way", async () => {
    for (let round = 0; round < 8; round++) {
      const where = newStream();
      const stale = await openRecords(pool, where);
      let value = 0;
      let stored = 0;
      let poison: unknown;
      // Keeps its pipeline full: each stored write is followed by another.
      const writeOn = () => {
        if (poison !== undefined) return;
        const mine = ++value;
        stale.put("key", body(String(mine))).then(
          () => {
            stored = Math.max(stored, mine);
            writeOn();
          },
          (error: unknown) => {
            poison ??= error;
          },
        );
      };
      for (let i = 0; i < MAX_IN_FLIGHT * 2; i++) writeOn();
      await until("it writes", () => stored > 500 + round * 37);
      const next = await openRecords(await server.pool(), where);
      const atOpening = (await next.load()).get("key");
      await until("it was told", () => poison);
      expect(poison).toBeInstanceOf(ConflictError);
      // Whatever it still had on its way has been refused by now, and nothing of it came after the opening.
      expect(await next.load().then((all) => all.get("key"))).toEqual(atOpening);
      // What it was told is stored was stored.
      expect(Number(Buffer.from(atOpening ?? "0").toString())).toBeGreaterThanOrEqual(stored);
      await Promise.all([stale.close(), next.close()]);
    }
  });
});

test("tombstones go by themselves", async () => {
  const where = newStream();
  const records = await openRecords(pool, where);
  await records.put("a", body("x"));
  await records.delete("a");
  const messages = async () => {
    const inbox = `inb.v1.pool.test${count}`;
    const answer = new Promise<string>((resolve) => {
      const subscription = pool.subscribe(inbox, (message) => {
        subscription.unsubscribe();
        resolve(Buffer.from(message.data).toString());
      });
    });
    pool.publish(`$JS.API.STREAM.INFO.${where.stream}`, body(""), { reply: inbox });
    return (JSON.parse(await answer) as { state: { messages: number } }).state.messages;
  };
  expect(await messages()).toBe(2); // the fence and the tombstone
  await until("only the fence is left", async () => (await messages()) === 1, 30_000);
  await records.put("b", body("y"));
  expect(await textsOf(records)).toEqual({ b: "y" });
  await records.close();
}, 60_000);

test("kill -9 of the server in the midst of writes loses none that was acknowledged, and the writer goes on", async () => {
  await using own = await testServer();
  const soon = { reconnect: { firstMs: 20, baseMs: 50, maxMs: 100 } };
  const link = await own.pool(soon);
  const records = await openRecords(link, { stream: "REC", subjectPrefix: "rec.v1.default" });
  const stored = new Map<string, string>();
  const writes: Promise<void>[] = [];
  const failed: unknown[] = [];
  for (let i = 0; i < 6_000; i++) {
    const [key, text] = [`k-${i % 500}`, String(i)];
    writes.push(
      records.put(key, body(text)).then(
        () => void stored.set(key, text),
        (error: unknown) => void failed.push(error),
      ),
    );
    if (i === 3_000) {
      await until("it is under way", () => stored.size > 50);
      await own.kill();
      await own.restart();
    }
  }
  await Promise.all(writes);
  expect(failed).toEqual([]);
  expect(await textsOf(records)).toEqual(Object.fromEntries(stored));
  await records.close();
}, 60_000);

test("a server that stays away poisons the writer with a typed error", async () => {
  await using own = await testServer();
  const link = await own.pool({ reconnect: { firstMs: 20, baseMs: 50, maxMs: 100 } });
  const records = await openRecords(link, { stream: "REC", subjectPrefix: "rec.v1.default", timeoutMs: 300 });
  await own.kill();
  const error = await records.put("a", body("x")).catch((e: unknown) => e);
  expect((error as { code: string }).code).toMatch(/connection_failed|deadline_exceeded|unreachable/);
  await records.close();
}, 60_000);
