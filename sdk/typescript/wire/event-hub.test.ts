// A connection may have 64 subscriptions, and any number of runs.
import { expect, spyOn, test } from "bun:test";
import {
  encode,
  PermissionDeniedError,
  runEventSubject,
  type SandboxLostError,
} from "../../../broker/contract/index.ts";
import type { Link } from "../../../broker/link/link.ts";
import { type TestServer, testServer, until } from "../../../broker/server/testing.ts";
import { testMesh } from "../../../pool/testing/mesh.ts";
import { events, type MeshEvent } from "../events.ts";
import { Mesh } from "../mesh.ts";
import { resolveSettings } from "../settings.ts";
import { connectTo, credentialsOf } from "../testing/harness.ts";
import { Caller } from "./caller.ts";
import { EventHub, MAX_NARROW } from "./event-hub.ts";
import { Pulse } from "./pulse.ts";

/** What MAX_NARROW makes of it. */
const BOUND = 46;
const MAX_SUBSCRIPTIONS = 64;

/** How many the connection has that has most, as the server says. */
async function subscriptions(server: TestServer): Promise<number> {
  const answer = await fetch(`http://127.0.0.1:${server.server.monitorPort}/connz?subs=1`);
  const { connections } = (await answer.json()) as {
    connections: { name: string; subscriptions_list?: string[] }[];
  };
  const users = connections.filter(({ name }) => !name.startsWith("pool"));
  return Math.max(0, ...users.map(({ subscriptions_list = [] }) => subscriptions_list.length));
}

test("of 100 runs of one connection each loss and event is told once: to handles, handles by id and readers of events", async () => {
  await using pool = await testMesh({}, { monitor: 0 });
  await using mesh = await connectTo(pool.server);
  await using other = await connectTo(pool.server);
  const printed = spyOn(console, "error");
  const runs = Array.from({ length: 100 }, (_, i) => mesh.run(`run-${i}`));
  const boxes = await Promise.all(runs.map((run) => run.acquire({ image: "host" })));
  const held = new Map<string, number>();
  const byId = new Map<string, number>();
  const count = (told: Map<string, number>, id: string) => told.set(id, (told.get(id) ?? 0) + 1);
  for (const box of boxes) {
    box.onLost(() => count(held, box.id));
    mesh.sandbox(box.id).onLost(() => count(byId, box.id));
  }
  const read: MeshEvent[] = [];
  const readers = [...runs, mesh].map(async (each) => {
    for await (const event of each.events({ what: ["released"] })) read.push(event);
  });
  // The handles by id have asked for their runs, and been told.
  await until("all is subscribed", async () => (await subscriptions(pool.server)) === BOUND);
  for (let i = 0; i < 3; i++) await Promise.all(boxes.map(({ id }) => other.list({ run: id })));
  await Promise.all(boxes.map(({ id }) => other.release({ sandbox: id })));
  await until("all are told", () => held.size + byId.size === 200 && read.length >= 200);
  expect(await subscriptions(pool.server)).toBeLessThanOrEqual(BOUND);
  await mesh.list();
  const once = boxes.map(({ id }): [string, number] => [id, 1]);
  expect([...held].sort()).toEqual(once.sort());
  expect([...byId].sort()).toEqual(once.sort());
  const ofEach = boxes.map(({ id }) => read.filter(({ sandbox }) => sandbox === id).length);
  // By the reader of its run, and by that of the mesh.
  expect(ofEach).toEqual(boxes.map(() => 2));
  await mesh.close();
  await Promise.allSettled(readers);
  expect(printed).not.toHaveBeenCalled();
  printed.mockRestore();
}, 60_000);

test("while runs come and go around the bound each listener hears all of its own, once and in order", async () => {
  await using server = await testServer({ monitor: 0 });
  const link = await server.user();
  const teller = await server.pool();
  const { events: hub } = new Caller(link).news;
  const names = Array.from({ length: 2 * MAX_NARROW }, (_, i) => `r-${i}`);
  let told = 0;
  const tell = () => {
    told++;
    for (const run of names) {
      const event = { what: "lost", at: new Date().toISOString(), run, sandbox: `sb-${told}` };
      teller.publish(runEventSubject("acme", run, "lost"), encode(event));
    }
  };
  const delivered = async () => {
    await teller.flush();
    await link.flush();
  };
  let seed = 1;
  const random = (below: number) => {
    seed = (seed * 48_271) % 2_147_483_647;
    return seed % below;
  };
  const join = (run: string | undefined) => {
    const heard: string[] = [];
    const listener = {
      tell: (event: { run?: string | undefined; sandbox?: string | undefined }) =>
        void heard.push(`${run === undefined ? event.run : ""} ${event.sandbox}`),
      refused: (error: unknown) => void heard.push(String(error)),
    };
    return { run, heard, from: 0, stop: hub.hear(run, listener) };
  };
  const leave = ({ run, heard, from, stop }: ReturnType<typeof join>) => {
    stop();
    const ofMesh = run === undefined;
    const all = Array.from({ length: told }, (_, i) => i + 1);
    const expected = all.flatMap((i) => (ofMesh ? names.map((name) => `${name} sb-${i}`) : [` sb-${i}`]));
    // What was on its way when it joined may be heard or not: the beginning of it.
    expect(heard).toEqual(expected.slice(expected.length - heard.length));
    expect(heard.length).toBeGreaterThanOrEqual((told - from) * (ofMesh ? names.length : 1));
  };
  const listening: ReturnType<typeof join>[] = [];
  for (let round = 0; round < 150; round++) {
    // Events flow while these join, and from the flush on they hear all.
    tell();
    const joined = Array.from({ length: 1 + random(4) }, () =>
      join(random(12) === 0 ? undefined : names[random(names.length)]),
    );
    tell();
    await delivered();
    for (const each of joined) each.from = told;
    listening.push(...joined);
    for (let i = random(4); i > 0; i--) tell();
    await delivered();
    for (let i = listening.length > 24 ? 8 : random(4); i > 0; i--) {
      const [gone] = listening.splice(random(listening.length), 1);
      if (gone !== undefined) leave(gone);
    }
  }
  expect(await subscriptions(server)).toBeLessThanOrEqual(MAX_NARROW + 1);
  for (const each of listening) leave(each);
  await link.flush();
  expect(await subscriptions(server)).toBe(0);
}, 60_000);

test("runs beyond those with subscriptions of their own share one, for as long as one of them is heard", async () => {
  await using server = await testServer({ monitor: 0 });
  const link = await server.user();
  const hub = new EventHub(link, (run) => [`evt.v1.acme.run.${run ?? "*"}.lost`]);
  const listener = { tell: () => undefined, refused: () => undefined };
  const stops = Array.from({ length: 3 * MAX_NARROW }, (_, i) => hub.hear(`r-${i >> 1}`, listener));
  const count = async () => {
    await link.flush();
    return await subscriptions(server);
  };
  expect(await count()).toBe(MAX_NARROW + 1);
  // The first run's; whose place the next new one takes.
  for (const stop of stops.splice(0, 2)) stop();
  expect(await count()).toBe(MAX_NARROW);
  stops.push(hub.hear("r-new", listener));
  expect(await count()).toBe(MAX_NARROW + 1);
  for (const stop of stops.splice(-9)) stop();
  expect(await count()).toBe(MAX_NARROW - 1);
  for (const stop of stops) stop();
  expect(await count()).toBe(0);
});

test("runs that go and others that come in their place are never more than may be", async () => {
  await using server = await testServer({ monitor: 0 });
  const link = await server.user();
  const { losses: hub } = new Caller(link).news;
  const refused: unknown[] = [];
  const listener = { tell: () => undefined, refused: (error: unknown) => void refused.push(error) };
  let stops: (() => void)[] = [];
  for (let turn = 0; turn < 10; turn++) {
    for (const stop of stops) stop();
    stops = Array.from({ length: 2 * MAX_NARROW }, (_, i) => hub.hear(`r-${turn}-${i}`, listener));
  }
  await link.flush();
  expect([refused, await subscriptions(server)]).toEqual([[], 4 * (MAX_NARROW + 1)]);
});

/** A connection that has as many subscriptions as it may have. */
async function usedUp(link: Link): Promise<() => void> {
  const fill = Array.from({ length: MAX_SUBSCRIPTIONS }, () =>
    link.subscribe("evt.v1.acme.pool.nothing", () => undefined),
  );
  await link.flush();
  return () => {
    for (const each of fill) each.unsubscribe();
  };
}

test("where the server refuses to tell of events their reader gets a typed error, and nothing is printed", async () => {
  await using server = await testServer();
  const faults: unknown[] = [];
  const link = await server.user("acme", "ann", { onError: (error) => faults.push(error) });
  const free = await usedUp(link);
  const caller = new Caller(link);
  for (const filter of [{ run: "r" }, {}]) {
    const refused = await events(caller, filter)
      .next()
      .catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(PermissionDeniedError);
    expect(refused).toMatchObject({ reason: "subscribe" });
  }
  free();
  const read = events(caller, { run: "r" });
  const next = read.next();
  await link.flush();
  const lost = { what: "lost", at: new Date().toISOString(), run: "r", sandbox: "sb-1" };
  const pool = await server.pool();
  pool.publish(runEventSubject("acme", "r", "lost"), encode(lost));
  expect((await next).value).toMatchObject(lost);
  await read.return();
  expect(faults).toEqual([]);
});

test("where the server refuses to tell of losses the pool is asked, so that they are told all the same", async () => {
  await using pool = await testMesh();
  const { server } = pool;
  const settings = await resolveSettings({ url: server.url, credentials: credentialsOf(server) }, {});
  const link = await server.user("acme", "ann", { onError: () => undefined });
  await using mesh = new Mesh(settings, new Caller(link), new Pulse(), { handleSignals: false });
  await using other = await connectTo(server);
  const box = await other.acquire({ image: "host" });
  // Answers are heard by then.
  await mesh.list();
  await usedUp(link);
  const held = await mesh.acquire({ image: "host" });
  const told: [string, string | undefined][] = [];
  for (const each of [held, mesh.sandbox(box.id)])
    each.onLost((error) => told.push([each.id, (error as SandboxLostError).reason]));
  // By then the handle by id has asked for its run, and again behind its hearing.
  for (let i = 0; i < 3; i++) await mesh.list();
  await other.release({ sandbox: box.id });
  await other.release({ sandbox: held.id });
  await until("both are told", () => told.length === 2, 30_000);
  expect(told.sort()).toEqual([box.id, held.id].sort().map((id) => [id, expect.any(String)]));
}, 60_000);
