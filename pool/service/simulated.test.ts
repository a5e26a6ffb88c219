// The pool with the simulated provider: the real endpoint's side of the wire, in numbers that doubles do not have.
import { expect, test } from "bun:test";
import pino from "pino";
import { newUuidV7, PingAnswer, parseAnswer, sandboxSubject } from "../../broker/contract/index.ts";
import { testServer, until } from "../../broker/server/testing.ts";
import { createSimulatedProvider } from "../provider/simulated/index.ts";
import { openRecords } from "../records/jetstream.ts";
import { Caller, SHORT } from "../testing/mesh.ts";
import { startPool } from "./pool.ts";

test("a burst of two tenants comes whole, executes, and is verified gone", async () => {
  await using server = await testServer();
  const log = pino({ level: "silent" });
  const link = await server.pool();
  const provider = await createSimulatedProvider();
  const pool = await startPool({
    link,
    store: await openRecords(link, log),
    minter: server.keys,
    providers: [provider],
    daemonUrls: [server.url],
    limits: { ...SHORT, confirmMs: 20_000, disconnectGraceMs: 5_000, maxBooting: 64 },
    log,
  });
  try {
    const ann = new Caller(await server.user("acme", "ann"));
    const bob = new Caller(await server.user("other", "bob"));
    const grants = await Promise.all(
      Array.from({ length: 300 }, (_, i) => (i % 2 === 0 ? ann : bob).lease({ id: newUuidV7() }, 60_000)),
    );
    expect(new Set(grants.map(({ sandbox }) => sandbox)).size).toBe(300);
    for (const [i, { sandbox }] of grants.entries()) {
      if (i % 20 !== 0) continue;
      const body = new Uint8Array(0);
      const pong = await ann.link.request(sandbox, sandboxSubject("acme", sandbox, "ping"), body, {
        timeoutMs: 10_000,
      });
      expect(parseAnswer(PingAnswer, pong.data)).toBeDefined();
    }
    await ann.renew("run-1", 60_000);
    expect(await ann.release({ run: "run-1" })).toMatchObject({ released: 150 });
    expect(await bob.release({ run: "run-1" })).toMatchObject({ released: 150 });
    expect(await provider.list(new AbortController().signal)).toEqual([]);
    expect(pool.counters.ended).toMatchObject({ released: 300 });
  } finally {
    await pool.close();
  }
});

test("a daemon that crashes is lost at once, and its sandbox is removed", async () => {
  await using server = await testServer();
  const log = pino({ level: "silent" });
  const link = await server.pool();
  const provider = await createSimulatedProvider();
  const pool = await startPool({
    link,
    store: await openRecords(link, log),
    minter: server.keys,
    providers: [provider],
    daemonUrls: [server.url],
    limits: SHORT,
    log,
  });
  try {
    const ann = new Caller(await server.user("acme", "ann"));
    const { sandbox } = await ann.lease();
    await provider.crash(sandbox);
    await until("it is gone", async () => (await ann.list()).sandboxes.length === 0);
    expect(Object.keys(pool.counters.ended)).toHaveLength(1);
    expect(pool.counters.ended.released).toBeUndefined();
    expect(await provider.list(new AbortController().signal)).toEqual([]);
  } finally {
    await pool.close();
  }
});
