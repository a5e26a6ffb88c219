// A pool that starts again takes up where the last one stopped, however that ended. The pool is a real process and its
// records are in JetStream; the sandboxes live in the test's process, so that they outlive it.
import { expect, test } from "bun:test";
import { newUuidV7 } from "../../broker/contract/index.ts";
import { type TestServer, testServer, until } from "../../broker/server/testing.ts";
import { errorOf } from "../testing/errors.ts";
import { Caller, QUICK, SHORT } from "../testing/mesh.ts";
import { type PoolProcess, spawnPool } from "../testing/process.ts";
import { ProviderDouble } from "../testing/provider.ts";
import { serveProvider } from "../testing/remote.ts";

class ProcessMesh implements AsyncDisposable {
  readonly server: TestServer;
  readonly provider = new ProviderDouble();
  readonly #remote = serveProvider(this.provider);
  readonly #pools: PoolProcess[] = [];

  constructor(server: TestServer) {
    this.server = server;
  }

  async startPool(limits = {}): Promise<PoolProcess> {
    const pool = await spawnPool({
      url: this.server.url,
      provider: this.#remote.url,
      credentials: this.server.keys.mintPool(),
      keys: this.server.keys.format(),
      limits: { ...SHORT, ...limits },
    });
    this.#pools.push(pool);
    return pool;
  }

  async operator(): Promise<Caller> {
    return new Caller(await this.server.operator("acme", "root", { reconnect: QUICK }));
  }

  async caller(): Promise<Caller> {
    return new Caller(await this.server.user("acme", "ann", { reconnect: QUICK }));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const pool of this.#pools) pool.kill("SIGKILL");
    await Promise.all(this.#pools.map((pool) => pool.exited));
    await this.provider.end();
    await this.#remote.stop();
    await this.server.close();
  }
}

const processMesh = async (): Promise<ProcessMesh> => new ProcessMesh(await testServer());

/** Asks until it is answered, as an SDK does: the same id, again when there was no answer. */
async function acquirePatiently(caller: Caller, id: string) {
  return until(
    `acquire ${id}`,
    () =>
      caller.lease({ id }, 2_000).catch((error: { code: string }) => {
        if (error.code !== "unreachable" && error.code !== "deadline_exceeded") throw error;
        return undefined;
      }),
    30_000,
  );
}

const sameSet = (a: ReadonlySet<string>, b: ReadonlyMap<string, unknown>): boolean =>
  a.size === b.size && [...a].every((id) => b.has(id));

test("a pool killed in the middle of a burst loses none, doubles none, and leaves none behind", async () => {
  await using mesh = await processMesh();
  const first = await mesh.startPool({ maxBooting: 4, createBurst: 4, createsPerSecond: 100 });
  const ann = await mesh.caller();
  const live = await ann.lease({ run: "live" });
  const ids = Array.from({ length: 30 }, () => newUuidV7());
  const asked = ids.map((id) => ann.lease({ id }, 1_500).catch(() => undefined));
  await until("the burst is half done", () => mesh.provider.created.length > 10);
  first.kill("SIGKILL");
  await first.exited;
  // Meanwhile one appears that nobody knows.
  mesh.provider.plant("sb-orphan", live.sandbox);
  await mesh.startPool();
  await Promise.all(asked);
  const grants = await Promise.all(ids.map((id) => acquirePatiently(ann, id)));
  expect(new Set(grants.map(({ sandbox }) => sandbox)).size).toBe(ids.length);
  expect(new Set(grants.map(({ lease }) => lease))).toEqual(new Set(ids));
  // One sandbox for each lease, and the one that lived on; everything else that came into being is removed.
  const wanted = new Set([live, ...grants].map(({ sandbox }) => sandbox));
  await until("exactly these are there", () => sameSet(wanted, mesh.provider.made));
  expect(mesh.provider.made.has("sb-orphan")).toBe(false);
  expect(await ann.renew("live")).toMatchObject({ sandboxes: 1 });
  expect(await ann.release({ run: "run-1" })).toMatchObject({ released: ids.length });
  expect(await ann.release({ run: "live" })).toMatchObject({ released: 1 });
  expect(mesh.provider.made.size).toBe(0);
}, 60_000);

test("what was lost, unconfirmed or expired while no pool was there is taken back, the rest works on", async () => {
  await using mesh = await processMesh();
  const first = await mesh.startPool({ confirmMs: 60_000 });
  const ann = await mesh.caller();
  const [kept, lost, unconfirmed, lapsing] = await Promise.all([
    ann.lease({ run: "kept" }),
    ann.lease({ run: "kept" }),
    ann.acquire({ run: "kept" }),
    ann.lease({ run: "lapsing", lease_ms: 1_000 }),
  ]);
  first.kill("SIGKILL");
  await first.exited;
  mesh.provider.made.delete(lost.sandbox);
  await mesh.startPool({ confirmMs: 300, recoveryGraceMs: 300 });
  const removed = (sandbox: string) => mesh.provider.removed.includes(sandbox);
  await until("the unconfirmed and the lapsed one are removed", () =>
    [unconfirmed, lapsing].every(({ sandbox }) => removed(sandbox)),
  );
  expect(await errorOf(ann.confirm(lost))).toMatchObject({ code: "sandbox_lost", reason: "deleted" });
  // The provider has ended them; the pool has yet to hear and to write so.
  const listed = async () => (await ann.list()).sandboxes.map(({ sandbox, state }) => `${sandbox} ${state}`);
  await until("only the kept one is listed", async () => `${await listed()}` === `${kept.sandbox} leased`);
  const daemon = mesh.provider.made.get(kept.sandbox)?.daemon;
  await until("the new pool has spoken to the live daemon", () => daemon?.words.at(-1)?.verb === "renew");
}, 60_000);

test("a pool that was killed while it drained is followed by one that drains, until an operator ends it", async () => {
  await using mesh = await processMesh();
  const first = await mesh.startPool();
  const [ann, root] = await Promise.all([mesh.caller(), mesh.operator()]);
  await ann.lease({ run: "live" });
  expect(await root.drain()).toMatchObject({ draining: true, remaining: 1 });
  first.kill("SIGKILL");
  await first.exited;
  const second = await mesh.startPool();
  expect(await ann.status()).toMatchObject({ draining: true });
  expect(await errorOf(ann.acquire())).toMatchObject({ code: "draining" });
  expect(await ann.renew("live")).toMatchObject({ sandboxes: 1 });
  expect(await root.drain({ on: false })).toMatchObject({ draining: false });
  second.kill("SIGKILL");
  await second.exited;
  await mesh.startPool();
  await ann.lease({ run: "after" });
}, 60_000);

test("a daemon that became ready while no pool was there is granted by the next one", async () => {
  await using mesh = await processMesh();
  mesh.provider.script = () => ({ boot: "never" });
  const first = await mesh.startPool();
  const ann = await mesh.caller();
  const id = newUuidV7();
  const asked = ann.acquire({ id }, 500).catch(() => undefined);
  const [made] = await until("made", () => mesh.provider.made.size === 1 && [...mesh.provider.made.values()]);
  if (made === undefined) throw new Error("nothing was made");
  await made.daemon.enrol();
  first.kill("SIGKILL");
  await first.exited;
  await made.daemon.serve();
  await asked;
  await mesh.startPool();
  const grant = await acquirePatiently(ann, id);
  expect(grant.sandbox).toBe(made.request.sandbox);
  expect(mesh.provider.created).toEqual([grant.sandbox]);
}, 60_000);

test("SIGTERM stops the pool and leaves the sandboxes to the next one", async () => {
  await using mesh = await processMesh();
  const first = await mesh.startPool();
  const ann = await mesh.caller();
  const grant = await ann.lease();
  first.kill("SIGTERM");
  expect(await first.exited).toBe(0);
  expect(mesh.provider.made.size).toBe(1);
  await mesh.startPool();
  expect(await ann.release({ sandbox: grant.sandbox })).toMatchObject({ released: 1 });
}, 60_000);

test("a pool that another one has replaced writes nothing more and ends", async () => {
  await using mesh = await processMesh();
  const first = await mesh.startPool();
  const ann = await mesh.caller();
  await ann.lease();
  await mesh.startPool();
  // Both hear requests now; the old one can do nothing with its share but notice.
  const ended = first.exited.then((status) => ({ status }));
  const grants = Array.from({ length: 8 }, () => acquirePatiently(ann, newUuidV7()));
  expect(await ended).toEqual({ status: 1 });
  const sandboxes = (await Promise.all(grants)).map(({ sandbox }) => sandbox);
  expect(new Set(sandboxes).size).toBe(8);
  await until("only the granted are there", () => mesh.provider.made.size === 9);
}, 90_000);

test("nats-server killed and started again: nothing is lost, doubled or left", async () => {
  await using mesh = await processMesh();
  await mesh.startPool({ maxBooting: 4 });
  const ann = await mesh.caller();
  const live = await ann.lease({ run: "live" });
  const ids = Array.from({ length: 20 }, () => newUuidV7());
  const asked = ids.map((id) => ann.lease({ id }, 1_500).catch(() => undefined));
  await until("the burst has begun", () => mesh.provider.created.length > 4);
  await mesh.server.kill();
  await mesh.server.restart();
  await Promise.all(asked);
  const grants = await Promise.all(ids.map((id) => acquirePatiently(ann, id)));
  expect(new Set(grants.map(({ sandbox }) => sandbox)).size).toBe(ids.length);
  await until("nothing else is there", () => mesh.provider.made.size === ids.length + 1);
  expect((await ann.list({ run: "live" })).sandboxes).toMatchObject([
    { sandbox: live.sandbox, state: "leased" },
  ]);
  await ann.release({ run: "run-1" });
  await ann.release({ run: "live" });
  expect(mesh.provider.made.size).toBe(0);
}, 90_000);
