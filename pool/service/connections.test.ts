// What the servers do not tell, or not yet: on a cluster of three real ones, of which one is killed, and through a network that
// is cut.
import { expect, test } from "bun:test";
import pino from "pino";
import { type TestServer, testServer, until } from "../../broker/server/testing.ts";
import { type TestCluster, testCluster } from "../../broker/server/testing-cluster.ts";
import { cuttable } from "../../test/cuttable.ts";
import { type CuttableCluster, cuttableCluster } from "../../test/cuttable-cluster.ts";
import type { PoolLimits } from "../config.ts";
import { openRecords } from "../records/jetstream.ts";
import { QUICK, TestMesh } from "../testing/mesh.ts";

/** A log, and whether these words were told there. */
function warnings() {
  const told: string[] = [];
  const log = pino({ level: "warn" }, { write: (line) => void told.push(line) });
  return { log, warned: (words: string) => told.some((line) => line.includes(words)) };
}

/** What is told of sandboxes' connections from now on. */
async function listen(server: TestServer) {
  const link = await server.pool({ reconnect: QUICK });
  const heard: string[] = [];
  for (const what of ["connect", "disconnect"]) {
    link.subscribe(`adv.v1.${what}`, ({ data }) => {
      if (Buffer.from(data).includes("role:sandbox")) heard.push(what);
    });
  }
  await link.flush();
  return { link, heard };
}

/** The pool is with the first server, daemons are with the second, or the third where that is gone. */
async function meshOn({ nodes: [first, second, third] }: TestCluster, limits: Partial<PoolLimits> = {}) {
  if (first === undefined || second === undefined || third === undefined) throw new Error("no node");
  const mesh = new TestMesh(first);
  const { log, warned } = warnings();
  await mesh.start(
    { disconnectGraceMs: 1_000, serverGoneMs: 1_500, muteConnectionMs: 2_000, ...limits },
    { daemonUrls: [second.url, third.url], log },
  );
  const ann = await mesh.caller();
  const { sandbox } = await ann.lease();
  const daemon = mesh.provider.made.get(sandbox)?.daemon;
  if (daemon === undefined) throw new Error("no daemon");
  const state = async () => (await ann.list()).sandboxes.find((each) => each.sandbox === sandbox)?.state;
  const isGone = () => warned("it counts as gone");
  return { mesh, daemon, state, second, third, sandbox, warned, isGone };
}

test("a daemon whose server was killed, and whose next connection ends as well, is not taken for another's; lost it is when it stays away", async () => {
  await using cluster = await testCluster();
  const { mesh, daemon, state, second, isGone } = await meshOn(cluster);
  await using _ = mesh;
  const { heard } = await listen(mesh.server);
  await second.kill();
  await until("it is with the third", () => heard.at(-1) === "connect");
  await daemon.close();
  await until("that has ended", () => heard.at(-1) === "disconnect");
  const back = await daemon.connect();
  await until("it is back", () => heard.at(-1) === "connect");
  await until("the killed one counts as gone", isGone, 20_000);
  expect([await state(), mesh.pool.counters.ended]).toEqual(["leased", {}]);
  await back.close();
  await until("it is lost", () => mesh.pool.counters.ended.disconnected === 1);
}, 60_000);

test("a daemon that is gone together with its server is lost", async () => {
  await using cluster = await testCluster();
  const { mesh, daemon, second, third } = await meshOn(cluster);
  await using _ = mesh;
  // The daemon's end reaches nobody.
  await Promise.all([second.kill(), third.kill()]);
  await daemon.close();
  await until("it is lost", () => mesh.pool.counters.ended.disconnected === 1, 20_000);
}, 60_000);

test("someone else with the sandbox's key on another server of the cluster ends it, and is not hidden by a killed one", async () => {
  await using cluster = await testCluster();
  const { mesh, daemon, second, sandbox } = await meshOn(cluster);
  await using _ = mesh;
  await second.kill();
  const { credentials } = daemon;
  if (credentials === undefined) throw new Error("not enrolled");
  const thief = await mesh.server.connect(credentials);
  await until("it is removed", () => mesh.provider.removed.includes(sandbox), 20_000);
  expect(mesh.pool.counters.ended).toEqual({ tampered: 1 });
  await thief.close();
}, 60_000);

test("a daemon that goes after its only server was started again is lost at once: nobody waits for the one that was", async () => {
  await using mesh = new TestMesh(await testServer());
  const { log, warned } = warnings();
  await mesh.start({ serverGoneMs: 600_000 }, { log });
  const ann = await mesh.caller();
  const { sandbox } = await ann.lease();
  const daemon = mesh.provider.made.get(sandbox)?.daemon;
  const states: (boolean | undefined)[] = [];
  const ear = await listen(mesh.server);
  ear.link.onStatus((connected) => void states.push(connected));
  await mesh.server.kill();
  await mesh.server.restart();
  await until("the ear is back", () => states.at(-1) === true);
  // It may be later than the ear, and would hear of none of what follows.
  await until("the pool is back", () => warned('"connected":true'));
  await daemon?.close();
  const again = await daemon?.connect();
  await until("it is back", () => ear.heard.includes("connect"));
  await again?.close();
  await until("it is lost", () => mesh.pool.counters.ended.disconnected === 1, 20_000);
}, 60_000);

test("a daemon whose network was cut, and who is back before its server has noticed, is not taken for two", async () => {
  await using mesh = new TestMesh(await testServer());
  await using network = await cuttable(mesh.server.port);
  await mesh.start({}, { daemonUrls: [network.url] });
  const ann = await mesh.caller();
  const { sandbox } = await ann.lease();
  const daemon = mesh.provider.made.get(sandbox)?.daemon;
  const { end } = network.cutUnseen();
  // It is asked, and asked again, on which connection it is.
  await until("the pool has looked twice", () => (daemon?.pings ?? 0) > 1, 20_000);
  end();
  await ann.renew();
  const { sandboxes } = await ann.list();
  expect(sandboxes.map(({ state }) => state)).toEqual(["leased"]);
  const thief = await daemon?.connect();
  await until("another's is told all the same", () => mesh.provider.removed.includes(sandbox), 20_000);
  expect(mesh.pool.counters.ended).toEqual({ tampered: 1 });
  await thief?.close();
}, 60_000);

/** A pool that looks soon at what lives after it was away. */
const SOON = { recoveryGraceMs: 500 };

test("a daemon that goes while the pool's own link is down is lost within the grace, and no other is", async () => {
  await using mesh = new TestMesh(await testServer());
  await using network = await cuttable(mesh.server.port);
  const { log, warned } = warnings();
  const way = { urls: [network.url], reconnect: QUICK };
  const link = await mesh.server.connect(mesh.server.keys.mintPool(), way);
  await mesh.start(SOON, { link, log });
  const ann = await mesh.caller();
  const hour = { lease_ms: 3_600_000 };
  const [lost, kept] = [await ann.lease(hour), await ann.lease(hour)];
  const { open } = network.block();
  await until("the pool is away", () => warned('"connected":false'));
  await mesh.provider.made.get(lost.sandbox)?.daemon.close();
  open();
  await until("it is lost", () => mesh.provider.removed.includes(lost.sandbox), 20_000);
  expect(mesh.pool.counters.ended).toEqual({ disconnected: 1 });
  const { sandboxes } = await ann.list();
  expect(sandboxes.find(({ sandbox }) => sandbox === kept.sandbox)?.state).toBe("leased");
}, 60_000);

test("while no pool runs one daemon goes and another's key is used: the next pool finds both, and takes no other for either", async () => {
  await using mesh = new TestMesh(await testServer());
  await mesh.start();
  const ann = await mesh.caller();
  const hour = { lease_ms: 3_600_000 };
  const [lost, stolen, kept] = [await ann.lease(hour), await ann.lease(hour), await ann.lease(hour)];
  await mesh.pool.close();
  await mesh.provider.made.get(lost.sandbox)?.daemon.close();
  const thief = await mesh.provider.made.get(stolen.sandbox)?.daemon.connect();
  await mesh.start(SOON);
  await until("both are removed", () => mesh.provider.removed.length === 2, 20_000);
  expect(mesh.provider.removed.toSorted()).toEqual([lost.sandbox, stolen.sandbox].toSorted());
  expect(mesh.pool.counters.ended).toEqual({ disconnected: 1, tampered: 1 });
  const { sandboxes } = await ann.list();
  expect(sandboxes.find(({ sandbox }) => sandbox === kept.sandbox)?.state).toBe("leased");
  await thief?.close();
}, 60_000);

// From here on most of each is a wait for what a server's silence comes to, each on a cluster of its own: all at the same time.

/** The pool is with the first server, daemons are with the second, which is cut off from the others while the pool's own
 * connection breaks and comes back: as where the network between two places fails. */
async function partedMesh({ cluster, cutOff }: CuttableCluster, limits: Partial<PoolLimits>) {
  const [first, second] = cluster.nodes;
  if (first === undefined || second === undefined) throw new Error("no node");
  const mesh = new TestMesh(first);
  const network = await cuttable(first.port);
  const { log, warned } = warnings();
  const link = await first.connect(first.keys.mintPool(), { urls: [network.url], reconnect: QUICK });
  await mesh.start({ ...SOON, ...limits }, { link, log, daemonUrls: [second.url] });
  const ann = await mesh.caller();
  const { sandbox } = await ann.lease({ lease_ms: 3_600_000 });
  const { heal } = cutOff(1);
  const { open } = network.block();
  await until("the pool is away", () => warned('"connected":false'));
  open();
  await until("the pool is back", () => warned('"connected":true'));
  // The server may not have its subscriptions yet: whoever asks by then is told that nobody listens.
  await link.flush();
  const state = async () => (await ann.list()).sandboxes.find((each) => each.sandbox === sandbox)?.state;
  const end = async () => {
    await mesh[Symbol.asyncDispose]();
    await network[Symbol.asyncDispose]();
  };
  const daemon = mesh.provider.made.get(sandbox)?.daemon;
  return { mesh, daemon, state, heal, warned, [Symbol.asyncDispose]: end };
}

test.concurrent("daemons of a server that was cut off while the pool was away are lost when that server counts as gone, and not before", async () => {
  await using parted = await cuttableCluster();
  await using both = await partedMesh(parted, { serverGoneMs: 15_000 });
  await until("they are lost", () => both.mesh.pool.counters.ended.disconnected === 1, 40_000);
  expect(both.warned("it counts as gone")).toBe(true);
}, 90_000);

test.concurrent("one that is back by then has lost none, and what ends there from then on is told at once", async () => {
  await using parted = await cuttableCluster();
  await using both = await partedMesh(parted, { serverGoneMs: 600_000 });
  const { mesh, daemon, state, heal, warned } = both;
  heal();
  expect(await state()).toBe("leased");
  await daemon?.close();
  await until("it is lost", () => mesh.pool.counters.ended.disconnected === 1, 40_000);
  expect(warned("gone")).toBe(false);
}, 60_000);

/** A pool that starts while the second server is cut off from the others, with a daemon that it has from the pool before. */
async function startedParted({ cluster, cutOff }: CuttableCluster) {
  const [first, second] = cluster.nodes;
  if (first === undefined || second === undefined) throw new Error("no node");
  const mesh = new TestMesh(first);
  const network = await cuttable(first.port);
  const start = async () => {
    const { log, warned } = warnings();
    const store = await openRecords(await first.pool(), log, { replicas: 3 });
    const link = await first.connect(first.keys.mintPool(), { urls: [network.url], reconnect: QUICK });
    await mesh.start({ ...SOON, serverGoneMs: 15_000 }, { link, log, store, daemonUrls: [second.url] });
    return warned;
  };
  await start();
  const ann = await mesh.caller();
  await ann.lease({ lease_ms: 3_600_000 });
  await mesh.pool.close();
  cutOff(1);
  const warned = await start();
  const end = async () => {
    await mesh[Symbol.asyncDispose]();
    await network[Symbol.asyncDispose]();
  };
  return { mesh, network, warned, [Symbol.asyncDispose]: end };
}

test.concurrent("a pool that starts while a server is cut off waits for it, too, though that never answered it", async () => {
  await using parted = await cuttableCluster();
  await using started = await startedParted(parted);
  const { mesh, warned } = started;
  await until("its daemon is lost", () => mesh.pool.counters.ended.disconnected === 1, 60_000);
  expect(warned("it counts as gone")).toBe(true);
}, 120_000);

test.concurrent("it waits for that one also where its own connection breaks and comes back meanwhile", async () => {
  await using parted = await cuttableCluster();
  await using started = await startedParted(parted);
  const { mesh, network, warned } = started;
  const { open } = network.block();
  await until("the pool is away", () => warned('"connected":false'));
  open();
  await until("its daemon is lost", () => mesh.pool.counters.ended.disconnected === 1, 60_000);
  expect(warned("it counts as gone")).toBe(true);
}, 120_000);

test.concurrent("a daemon that is gone together with its server is lost when that server was started again: nobody waits for the one before", async () => {
  await using cluster = await testCluster();
  const { mesh, daemon, second, third, warned, isGone } = await meshOn(cluster, { serverGoneMs: 30_000 });
  await using _ = mesh;
  await Promise.all([second.kill(), third.kill()]);
  await daemon.close();
  await Promise.all([second.restart(), third.restart()]);
  await until("it is lost", () => mesh.pool.counters.ended.disconnected === 1, 60_000);
  expect([warned("was started again"), isGone()]).toEqual([true, false]);
}, 90_000);
