// The records in a real JetStream.
import { expect, test } from "bun:test";
import pino from "pino";
import { testServer, until } from "../../broker/server/testing.ts";
import { cuttable } from "../../test/cuttable.ts";
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

test("however many ask whether a pool is still the current one, while one write shows it they wait for one more", async () => {
  await using server = await testServer();
  await using network = await cuttable(server.port);
  const link = await server.connect(server.keys.mintPool(), { urls: [network.url], reconnect: QUICK });
  const store = await openRecords(link, log);
  const ear = await server.pool();
  let writes = 0;
  ear.subscribe("rec.v1.pool._fence", () => void writes++);
  await ear.flush();
  const states: (boolean | undefined)[] = [];
  link.onStatus((connected) => void states.push(connected));
  const { open } = network.block();
  await until("it is away", () => states.at(-1) === false);
  const asked: Promise<void>[] = [];
  for (let turn = 0; turn < 50; turn++) {
    asked.push(store.current());
    await new Promise<void>((go) => setImmediate(go));
  }
  open();
  await Promise.all(asked);
  await ear.flush();
  // The records' own after each absence is among them.
  expect(writes).toBeGreaterThan(0);
  expect(writes).toBeLessThan(5);
  await store.close(1_000);
}, 30_000);

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
