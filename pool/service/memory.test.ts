// What the pool holds after many rounds is what it held before: nothing of a sandbox stays once its end is forgotten.
// SANDMESH_LONG=1: 2,000 sandboxes a round.
import { expect, test } from "bun:test";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { newUuidV7 } from "../../broker/contract/index.ts";
import { testServer, until } from "../../broker/server/testing.ts";
import { Caller, SHORT } from "../testing/mesh.ts";
import { spawnPool } from "../testing/process.ts";

const COUNT = process.env.SANDMESH_LONG === "1" ? 2_000 : 250;
const ROUNDS = 5;
/** One that stays holds some 3 KiB; the heap itself wavers by some 300 KiB, whatever is done. */
const MAY_STAY_BYTES = 600;

test(`${ROUNDS} rounds of ${COUNT}: the heap falls back once their ends are forgotten`, async () => {
  const stateDir = await mkdtemp(join(tmpdir(), "sandmesh-memory-"));
  await using server = await testServer();
  const limits = { ...SHORT, confirmMs: 30_000, disconnectGraceMs: 10_000, tombstoneMs: 500 };
  const { keys, url } = server;
  const pool = await spawnPool({ url, stateDir, credentials: keys.mintPool(), keys: keys.format(), limits });
  try {
    const ann = new Caller(await server.user());
    const forgotten = () => until("ends are forgotten", async () => !("gone" in (await ann.status()).states));
    const round = async (): Promise<number> => {
      const run = `round-${newUuidV7()}`;
      await Promise.all(Array.from({ length: COUNT }, () => ann.lease({ run, lease_ms: 300_000 }, 120_000)));
      expect(await ann.release({ run })).toMatchObject({ released: COUNT });
      await forgotten();
      const { heapBytes, objects, rssBytes } = await pool.memory();
      if (COUNT > 1_000) console.error({ heapBytes, objects, rssMib: Math.round(rssBytes / 2 ** 20) });
      return heapBytes;
    };
    // The first two fill what is made once and kept: code, buffers, caches.
    const heaps: number[] = [];
    for (let i = 0; i < ROUNDS; i++) heaps.push(await round());
    const [, before = 0] = heaps;
    const grown = Math.min(...heaps.slice(-2)) - before;
    expect(grown / ((ROUNDS - 2) * COUNT)).toBeLessThan(MAY_STAY_BYTES);
  } finally {
    pool.kill("SIGTERM");
    await pool.exited;
    await rm(stateDir, { recursive: true, force: true });
  }
}, 600_000);
