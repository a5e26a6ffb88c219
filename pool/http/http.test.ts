// The pool's HTTP server, beside a real pool and a real nats-server.
import { afterAll, beforeAll, expect, test } from "bun:test";
import { connect as connectTcp } from "node:net";
import pino from "pino";
import { newUuidV7 } from "../../broker/contract/index.ts";
import { type TestServer, testServer, until } from "../../broker/server/testing.ts";
import { createSimulatedProvider } from "../provider/simulated/index.ts";
import { openRecords } from "../records/jetstream.ts";
import { type Pool, startPool } from "../service/pool.ts";
import { Caller, QUICK, SHORT } from "../testing/mesh.ts";
import { unheard } from "../testing/request.ts";
import { meteredProvider, meteredRecords } from "./metered.ts";
import { boundedWords, PoolMetrics } from "./metrics.ts";
import { type HttpServer, serveHttp } from "./server.ts";
import { parseMetrics, reading, type Sample } from "./testing.ts";

let server: TestServer;
let pool: Pool;
let http: HttpServer;
const log = pino({ level: "silent" });

beforeAll(async () => {
  server = await testServer();
  const metrics = new PoolMetrics();
  http = serveHttp({ listen: "127.0.0.1:0", metrics, notReady: () => pool.standing().notReady });
  const link = await server.pool({ reconnect: QUICK });
  const provider = meteredProvider(await createSimulatedProvider(), metrics);
  pool = await startPool({
    link,
    store: meteredRecords(await openRecords(link, log), metrics),
    minter: server.keys,
    providers: [provider],
    daemonUrls: [server.url],
    limits: { ...SHORT, confirmMs: 20_000, disconnectGraceMs: 5_000, maxBooting: 4 },
    log,
    meter: metrics,
  });
  metrics.watch(pool, [provider]);
});
afterAll(async () => {
  await http.stop();
  await pool.close();
  await server.close();
});

const get = (path: string): Promise<Response> => fetch(new URL(path, http.url));

async function scrape(): Promise<Sample[]> {
  const answer = await get("/metrics");
  expect(answer.status).toBe(200);
  expect(answer.headers.get("content-type")).toStartWith("text/plain; version=0.0.4");
  return parseMetrics(await answer.text());
}

const userOf = async (tenant: string, user = "ann"): Promise<Caller> =>
  new Caller(await server.user(tenant, user, { reconnect: QUICK }));

/** Leases and releases `count` sandboxes, each in a run of its own. */
async function work(caller: Caller, count: number): Promise<string[]> {
  const runs = Array.from({ length: count }, (_, i) => `run-${i}-${newUuidV7().slice(-6)}`);
  await Promise.all(runs.map((run) => caller.lease({ id: newUuidV7(), run }, 60_000)));
  await Promise.all(runs.map((run) => caller.release({ run })));
  return runs;
}

const seriesOf = (samples: readonly Sample[]): Set<string> =>
  new Set(samples.map(({ name, labels }) => `${name} ${JSON.stringify(labels)}`));

test("what is counted is what was done, step by step, and a scraper can read all of it", async () => {
  const before = await scrape();
  const moved = async (name: string, labels?: Record<string, string>): Promise<number> =>
    (reading(await scrape(), name, labels) ?? 0) - (reading(before, name, labels) ?? 0);
  await work(await userOf("acme"), 12);
  expect(await moved("sandmesh_pool_acquires_total")).toBe(12);
  expect(await moved("sandmesh_pool_grants_total")).toBe(12);
  expect(await moved("sandmesh_pool_acquire_seconds_count")).toBe(12);
  for (const step of ["queued", "created", "enrolled", "granted", "confirmed", "removed"]) {
    expect([step, await moved("sandmesh_pool_step_seconds_count", { step })]).toEqual([step, 12]);
  }
  expect(await moved("sandmesh_pool_ended_total", { reason: "released" })).toBe(12);
  expect(await moved("sandmesh_pool_pace_decisions_total", { decision: "go" })).toBe(12);
  // Twelve at once, of which four may start: the others were told to wait.
  expect(await moved("sandmesh_pool_pace_decisions_total", { decision: "booting" })).toBeGreaterThan(0);
  expect(await moved("sandmesh_provider_call_seconds_count", { call: "create", result: "ok" })).toBe(12);
  expect(await moved("sandmesh_pool_record_write_seconds_count", { record: "sandbox" })).toBeGreaterThan(35);
  const now = await scrape();
  expect(reading(now, "sandmesh_pool_sandboxes", { state: "leased" })).toBe(0);
  expect(reading(now, "sandmesh_pool_queue_length")).toBe(0);
  expect(reading(now, "sandmesh_pool_starting_limit")).toBe(4);
  expect(reading(now, "sandmesh_build_info")).toBe(1);
  expect(reading(now, "process_cpu_seconds_total")).toBeGreaterThan(0);
});

test("what holds a sandbox now is told, and a refusal by its code", async () => {
  const ann = await userOf("acme");
  const { sandbox } = await ann.lease();
  await ann.acquire({ id: "not-an-id" }).catch(() => undefined);
  const samples = await scrape();
  expect(reading(samples, "sandmesh_pool_sandboxes", { state: "leased" })).toBe(1);
  expect(reading(samples, "sandmesh_pool_runs")).toBe(1);
  expect(reading(samples, "sandmesh_pool_errors_total", { code: "invalid_request" })).toBe(1);
  await ann.release({ sandbox });
});

test("several that are removed by one call are one call of the provider's, told at its end with the code of what failed", async () => {
  const told: string[] = [];
  const provider = meteredProvider(await createSimulatedProvider({ removeFails: 1 }), {
    called: (_, call, result) => void told.push(`${call} ${result}`),
    wrote: () => undefined,
  });
  const all = ["sb-one", "sb-two"].map((sandbox) => ({ sandbox, uid: undefined }));
  const limit = AbortSignal.timeout(20_000);
  for (const { sandbox } of all) await provider.create(unheard(sandbox, { image: "any" }), limit);
  told.length = 0;
  for (const outcome of ["rejected", "fulfilled"] as const) {
    const ends = await Promise.allSettled(provider.removeMany?.(all, limit) ?? []);
    expect(ends.map(({ status }) => status)).toEqual([outcome, outcome]);
  }
  await until("both calls", () => told.length > 1);
  expect(told).toEqual(["remove_many provider_failed", "remove_many ok"]);
});

test("the README names every metric that there is, and no other", async () => {
  const readme = await Bun.file(new URL("README.md", import.meta.url)).text();
  const written = new Set(readme.match(/\b(sandmesh|process)_[a-z_]+\b/g));
  const text = await (await get("/metrics")).text();
  const served = new Set([...text.matchAll(/^# TYPE (\S+)/gm)].map(([, name]) => name ?? ""));
  expect([...served].sort()).toEqual([...written].sort());
});

test("no tenant, user, run or sandbox becomes a time series", async () => {
  await work(await userOf("acme"), 3);
  const before = await scrape();
  const names: string[] = [];
  for (const tenant of ["tenant-one", "tenant-two", "tenant-three"]) {
    names.push(tenant, ...(await work(await userOf(tenant, `user-of-${tenant}`), 5)));
  }
  const after = await scrape();
  expect(seriesOf(after)).toEqual(seriesOf(before));
  const values = after.flatMap(({ labels }) => Object.values(labels));
  expect(values.filter((value) => /^sb-|user-of/.test(value) || names.includes(value))).toEqual([]);
});

test("words that a provider makes up are bounded, whatever it says", () => {
  const word = boundedWords();
  const seen = new Set<string>();
  for (let i = 0; i < 1_000; i++) seen.add(word(`reason_${i}`));
  expect(seen.size).toBe(65);
  expect(word("reason_0")).toBe("reason_0");
  expect(boundedWords()('no word "at all"\n')).toBe("other");
});

/** Sends bytes on a connection of its own; answers what came until the other side, or this one after 300 ms, ends it. */
function raw(bytes: string | Uint8Array): Promise<string> {
  const { port } = new URL(http.url);
  return new Promise((resolve) => {
    let said = "";
    const socket = connectTcp(Number(port), "127.0.0.1", () => socket.write(bytes));
    socket.setTimeout(300, () => socket.destroy());
    socket.on("data", (part) => {
      said += part.toString("latin1");
    });
    socket.on("error", () => undefined);
    socket.on("close", () => resolve(said));
  });
}

test("a request that is malformed, too long or never ends does no harm", async () => {
  const hostile = [
    "\0\xff\xfe\n\n",
    "GET\r\n\r\n",
    "GET /metrics HTTP/9.9\r\n\r\n",
    `GET /${"a".repeat(100_000)} HTTP/1.1\r\nhost: x\r\n\r\n`,
    `GET / HTTP/1.1\r\nhost: x\r\n${"x: y\r\n".repeat(20_000)}\r\n`,
    "POST /metrics HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999\r\n\r\n",
    "POST /readyz HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nZZ\r\n",
    "GET /metrics HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
    "GET /healthz HTTP/1.1\r\nhost: x\r\n",
    new Uint8Array(200_000).fill(65),
  ];
  const said = await Promise.all(hostile.map(raw));
  for (const answer of said) expect(answer).not.toContain("HTTP/1.1 200");
  for (const path of ["/..%2f..%2fetc/passwd", "/metrics/../../x", "/%ff", "/metrics/extra", "/"]) {
    expect((await get(path)).status).toBe(404);
  }
  expect((await fetch(new URL("/metrics", http.url), { method: "DELETE" })).status).toBe(404);
  expect(await (await get("/healthz")).text()).toBe("ok\n");
  const ann = await userOf("acme");
  await ann.release(await ann.lease().then(({ sandbox }) => ({ sandbox })));
});

test("not ready while NATS is away, and ready again when it is back; healthy all the time", async () => {
  expect((await get("/readyz")).status).toBe(200);
  await server.kill();
  await until("not ready", async () => (await get("/readyz")).status === 503);
  expect(await (await get("/readyz")).text()).toBe("not ready: NATS is away\n");
  expect((await get("/healthz")).status).toBe(200);
  expect(reading(await scrape(), "sandmesh_pool_ready")).toBe(0);
  await server.restart();
  await until("ready again", async () => (await get("/readyz")).status === 200);
  expect(reading(await scrape(), "sandmesh_pool_nats_connected")).toBe(1);
});
