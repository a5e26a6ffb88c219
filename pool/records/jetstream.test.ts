// The records in a real JetStream.
import { expect, test } from "bun:test";
import pino from "pino";
import { testServer, until } from "../../broker/server/testing.ts";
import { encodeRecord } from "../lifecycle/record.ts";
import { intended } from "../lifecycle/testing.ts";
import { newRun } from "../runs/run.ts";
import { QUICK } from "../testing/mesh.ts";
import { openRecords } from "./jetstream.ts";

const log = pino({ level: "silent" });

test("what one pool wrote the next one finds, the newest of each and nothing of what was forgotten", async () => {
  await using server = await testServer();
  const first = await openRecords(await server.pool(), log);
  const record = intended();
  const run = newRun("default", "r1", 1_000, 5_000);
  const other = intended({ sandbox: "sb-other" });
  await Promise.all([
    first.putSandbox(record),
    first.putSandbox({ ...record, state: "booting" }),
    first.putSandbox(other),
    first.putRun(run),
    first.putRun({ ...run, run: "r2" }),
  ]);
  await Promise.all([first.forgetSandbox(other), first.forgetRun("default", "r2")]);
  await first.close(1_000);
  const second = await openRecords(await server.pool(), log);
  const { sandboxes, runs } = await second.load();
  expect(sandboxes.map(encodeRecord)).toEqual([encodeRecord({ ...record, state: "booting" })]);
  expect(runs).toEqual([run]);
  await second.close(1_000);
});

test("a pool that another one has replaced can write nothing, and is told", async () => {
  await using server = await testServer();
  const first = await openRecords(await server.pool(), log);
  await first.putSandbox(intended());
  const second = await openRecords(await server.pool(), log);
  await expect(first.putSandbox(intended({ state: "leased" }))).rejects.toThrow();
  expect((await first.failed).message).toContain("another writer");
  expect((await second.load()).sandboxes.map(({ state }) => state)).toEqual(["intended"]);
  await second.close(1_000);
});

test("writes before, while and after the server is killed are all stored, and the pool goes on", async () => {
  await using server = await testServer();
  const link = await server.pool({ reconnect: QUICK });
  const store = await openRecords(link, log);
  const writes: Promise<void>[] = [];
  const write = (): void => {
    const expiresAt = writes.length;
    writes.push(store.putRun(newRun("default", `r${expiresAt % 5}`, 1_000, expiresAt)));
  };
  const writing = setInterval(() => {
    for (let i = 0; i < 10; i++) write();
  }, 1);
  await until("some are written", () => writes.length > 200);
  await server.kill();
  // Lost and held ones must both be there, in order.
  await until("more are waiting", () => writes.length > 400);
  await server.restart();
  await until("more are written", () => writes.length > 800);
  clearInterval(writing);
  await Promise.all(writes);
  const { runs } = await store.load();
  const last = writes.length - 1 + 1_000;
  expect(runs.map(({ expiresAt }) => expiresAt).sort((a, b) => b - a)).toEqual(
    [0, 1, 2, 3, 4].map((k) => last - k),
  );
  await store.close(1_000);
});

test("more writes at once than may wait in the stream's writer are all stored, in order", async () => {
  await using server = await testServer();
  const store = await openRecords(await server.pool(), log);
  const writes: Promise<void>[] = [];
  for (let i = 0; i < 70_000; i++) writes.push(store.putRun(newRun("default", `r${i % 7}`, 1_000, i)));
  await Promise.all(writes);
  const { runs } = await store.load();
  expect(runs.map(({ expiresAt }) => expiresAt).sort()).toEqual([6, 5, 4, 3, 2, 1, 0].map((k) => 70_999 - k));
  await store.close(1_000);
}, 60_000);
