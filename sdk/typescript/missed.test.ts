// What happened while the connection was away is not told by anybody: it is asked for, or said to be missing.
import { describe, expect, test } from "bun:test";
import { decode, encode, runEventSubject } from "../../broker/contract/index.ts";
import { connect } from "../../broker/link/connect.ts";
import { type TestServer, testServer, until } from "../../broker/server/testing.ts";
import { testMesh } from "../../pool/testing/mesh.ts";
import { cuttable } from "../../test/cuttable.ts";
import { type EventFilter, events } from "./events.ts";
import { connectTo } from "./testing/harness.ts";
import { Box } from "./wire/box.ts";
import { Caller } from "./wire/caller.ts";
import { Lifeline } from "./wire/lifeline.ts";
import { Losses } from "./wire/losses.ts";
import { Pulse } from "./wire/pulse.ts";

const SPEC = { image: "host" } as const;

/** Tells events of run "r" as a pool does; resolves when the server has them. */
async function teller(server: TestServer) {
  const pool = await server.pool();
  return async (count: number, sandbox = "sb") => {
    const event = { what: "lost", at: new Date().toISOString(), run: "r", reason: "evicted" };
    for (let i = 0; i < count; i++)
      pool.publish(runEventSubject("acme", "r", "lost"), encode({ ...event, sandbox: `${sandbox}-${i}` }));
    await pool.flush();
  };
}

async function userLink(server: TestServer, url = server.url) {
  const credentials = server.keys.mintUser({ tenant: "acme", user: "ann" });
  const link = await connect({ urls: [url], credentials });
  return Object.assign(link, { [Symbol.asyncDispose]: () => link.close() });
}

/** A reader of them, whose first step the server has heard of. */
async function reader(server: TestServer, filter: EventFilter = {}, url = server.url) {
  const link = await userLink(server, url);
  const read = events(new Caller(link), { run: "r", ...filter });
  const first = read.next();
  await link.flush();
  return { read, first, link, [Symbol.asyncDispose]: () => link.close() };
}

test("a sandbox that was released while the connection was away is told as lost to who holds it and asks nothing", async () => {
  await using pool = await testMesh();
  await using way = await cuttable(pool.server.port);
  await using mesh = await connectTo(pool.server, { url: way.url });
  await using other = await connectTo(pool.server);
  const [ended, lives] = await mesh.acquireMany(2, { ...SPEC, run: "r" });
  if (ended === undefined || lives === undefined) throw new Error("there are not two");
  const told: Error[] = [];
  ended.onLost((error) => told.push(error));
  const blocked = way.block();
  await other.release({ sandbox: ended.id });
  blocked.open();
  await until("it is told", () => told.length > 0, 20_000);
  expect(told).toEqual([ended.lost as Error]);
  expect(ended.lost).toMatchObject({ code: "sandbox_lost", sandbox: ended.id, reason: "gone" });
  expect(lives.lost).toBeUndefined();
}, 60_000);

describe("who has a sandbox by its id alone, and asks nothing", () => {
  test("is told of its loss", async () => {
    await using pool = await testMesh();
    await using holder = await connectTo(pool.server);
    await using mesh = await connectTo(pool.server);
    const boxes = await holder.acquireMany(3, { ...SPEC, run: "r" });
    const told: unknown[] = [];
    const handles = boxes.map(({ id }) => mesh.sandbox(id));
    for (const each of handles) each.onLost((error) => told.push([each.id, error]));
    const [first, second, third] = handles;
    // Also of one that ended before its run was known here, and of one that never was.
    await boxes[0]?.release();
    await until("the first one", () => told.length === 1);
    expect(told).toMatchObject([[first?.id, { code: "sandbox_lost", reason: "released" }]]);
    expect([first?.lost, second?.lost]).toMatchObject([{ reason: "released" }, undefined]);
    await holder.release({ run: "r" });
    await until("the others", () => told.length === 3);
    expect(third?.lost).toMatchObject({ reason: "released" });
    const never = mesh.sandbox("sb-never");
    never.onLost((error) => told.push([never.id, error]));
    await until("that it is not there", () => told.length === 4);
    expect(told[3]).toMatchObject(["sb-never", { code: "not_found" }]);
  }, 60_000);

  test("is told when the connection is back of what ended while it was away, and not of what lives", async () => {
    await using pool = await testMesh();
    await using way = await cuttable(pool.server.port);
    await using holder = await connectTo(pool.server);
    await using mesh = await connectTo(pool.server, { url: way.url });
    const [before, ended, lives] = await holder.acquireMany(3, { ...SPEC, run: "r" });
    if (before === undefined || ended === undefined || lives === undefined)
      throw new Error("there are not three");
    const told: unknown[] = [];
    const handles = [before, ended, lives].map(({ id }) => mesh.sandbox(id));
    for (const each of handles) each.onLost(() => told.push(each.id));
    await before.release();
    await until("the run is heard", () => told.length > 0);
    const blocked = way.block();
    await ended.release();
    blocked.open();
    await until("it is told", () => told.length > 1, 20_000);
    expect([told, handles[2]?.lost]).toEqual([[before.id, ended.id], undefined]);
  }, 60_000);

  test("is told of its loss also where the pool was away when it began to listen", async () => {
    await using server = await testServer();
    await using link = await userLink(server);
    const caller = new Caller(link);
    const more = { losses: new Losses(caller) };
    const box = new Box(caller, new Pulse(), new Lifeline(), { sandbox: "sb-1", fence: {} }, more);
    const told: unknown[] = [];
    box.onLost((error) => told.push(error));
    await link.flush();
    const lists = await grantingPool(server);
    await until("the pool is asked again", () => lists.length > 0, 20_000);
    lists[0]?.([{ ...VIEW, sandbox: "sb-1", state: "leased", run: "r" }]);
    await until("its run is heard, behind which it is asked for once more", () => lists.length > 1);
    lists[1]?.([{ ...VIEW, sandbox: "sb-1", state: "lost", run: "r", reason: "evicted" }]);
    await until("it is told", () => told.length > 0);
    expect(told).toMatchObject([{ code: "sandbox_lost", reason: "evicted" }]);
  }, 60_000);

  test("is told nothing, and nothing fails, where the pool answers while the connection closes", async () => {
    await using server = await testServer();
    const link = await userLink(server);
    const lists = await grantingPool(server);
    const caller = new Caller(link);
    const more = { losses: new Losses(caller) };
    const box = new Box(caller, new Pulse(), new Lifeline(), { sandbox: "sb-1", fence: {} }, more);
    const failed: unknown[] = [];
    const fail = (error: unknown) => failed.push(error);
    process.on("unhandledRejection", fail);
    box.onLost((error) => failed.push(error));
    await until("the pool is asked", () => lists.length > 0);
    lists[0]?.([{ ...VIEW, sandbox: "sb-1", state: "leased", run: "r" }]);
    await new Promise((go) => setImmediate(go));
    // The answer is here then, and read when the closing has begun.
    Bun.sleepSync(200);
    await link.close();
    await Bun.sleep(0);
    process.off("unhandledRejection", fail);
    expect(failed).toEqual([]);
  }, 60_000);

  test("hears a run by one subscription, of however many of it, until nobody wants to know any more", async () => {
    await using server = await testServer({ monitor: 0 });
    await using mesh = await connectTo(server);
    const lists = await grantingPool(server);
    const stops = ["sb-1", "sb-2", "sb-3"].map((id) => mesh.sandbox(id).onLost(() => undefined));
    const heard = async () => {
      const answer = await fetch(`http://127.0.0.1:${server.server.monitorPort}/connz?subs=1`);
      return (await answer.text()).split(".run.r.lost").length - 1;
    };
    await until("the pool is asked for each", () => lists.length === 3);
    for (const [i, sandbox] of ["sb-1", "sb-2", "sb-3"].entries())
      lists[i]?.([{ ...VIEW, sandbox, state: "leased", run: "r" }]);
    await until("the run is heard, behind which each is asked for once more", () => lists.length === 6);
    expect(await heard()).toBe(1);
    for (const stop of stops) stop();
    await until("nothing is heard", async () => (await heard()) === 0);
  }, 60_000);
});

const VIEW = { generation: 1, image: "host", provider: "played", age_ms: 1 };

test("a release whose answer is lost counts what it has ended, and finds that it was there", async () => {
  await using pool = await testMesh();
  await using way = await cuttable(pool.server.port);
  await using mesh = await connectTo(pool.server, { url: way.url });
  await using other = await connectTo(pool.server);
  pool.provider.script = () => ({ removeFailures: 20 });
  await mesh.acquireMany(2, { ...SPEC, run: "r" });
  const releasing = mesh.release({ run: "r" }, { mustExist: true });
  const isEnding = async () => (await other.list({ run: "r" })).every(({ state }) => state === "releasing");
  await until("it has begun", isEnding);
  const blocked = way.block();
  await until("all is gone", () => pool.provider.made.size === 0);
  blocked.open();
  expect(await releasing).toBe(2);
}, 60_000);

/** A pool that grants what is asked for, and whose lists the test answers. */
async function grantingPool(server: TestServer) {
  const pool = await server.pool();
  const lists: ((sandboxes: object[]) => void)[] = [];
  let made = 0;
  const timeline = { queued_ms: 0, created_ms: 0, enrolled_ms: 0, ready_ms: 0 };
  const answers: Record<string, (body: Record<string, unknown>) => object> = {
    acquire: ({ id, run }) => ({
      ...{ sandbox: `sb-${++made}`, run, lease: id, generation: 1, incarnation: "incarnation" },
      ...{ lease_ms: 60_000, confirm_ms: 30_000, provider: "played", timeline },
    }),
    confirm: ({ sandbox }) => ({ sandbox }),
    renew: ({ run }) => ({ run, lease_ms: 60_000, sandboxes: made }),
    release: () => ({ released: 1, known: 1 }),
  };
  pool.subscribe("pool.v1.acme.*", ({ subject, data, reply }) => {
    const verb = subject.split(".").at(-1) ?? "";
    const say = (body: object) => reply !== undefined && pool.publish(reply, encode(body));
    if (verb === "list") lists.push((sandboxes) => say({ sandboxes }));
    else say(answers[verb]?.(decode(data) as Record<string, unknown>) ?? {});
  });
  await pool.flush();
  return lists;
}

test("what is acquired while the pool is asked what became of the others is not told as lost", async () => {
  await using server = await testServer();
  await using way = await cuttable(server.port);
  const lists = await grantingPool(server);
  await using mesh = await connectTo(server, { url: way.url });
  const gone = await mesh.acquire(SPEC);
  const ended = await mesh.acquire(SPEC);
  const kept = await mesh.acquire(SPEC);
  const view = { ...VIEW, run: mesh.defaultRun };
  way.cut();
  await until("the pool is asked", () => lists.length > 0);
  const later = await mesh.acquire(SPEC);
  expect([gone.lost, ended.lost]).toEqual([undefined, undefined]);
  lists[0]?.([
    { ...view, sandbox: ended.id, state: "lost", reason: "evicted" },
    { ...view, sandbox: kept.id, state: "leased" },
  ]);
  await until("the losses are told", () => gone.lost !== undefined && ended.lost !== undefined);
  expect([gone.lost, ended.lost]).toMatchObject([{ reason: "gone" }, { reason: "evicted" }]);
  expect([kept.lost, later.lost, lists.length]).toEqual([undefined, undefined, 1]);
}, 60_000);

test("events say once that some may be missing, where the connection was cut, whatever the filter is", async () => {
  await using server = await testServer();
  await using way = await cuttable(server.port);
  const tell = await teller(server);
  const filter = { what: new Set(["lost"] as const), sandbox: "sb-0" };
  await using reading = await reader(server, filter, way.url);
  const { read, first, link } = reading;
  await tell(1);
  expect((await first).value).toMatchObject({ what: "lost", sandbox: "sb-0" });
  const before = Date.now();
  const next = read.next();
  way.cut();
  const { value } = await next;
  expect(value).toEqual({ what: "missed", at: expect.any(String) });
  expect(Date.parse(value?.at ?? "")).toBeGreaterThanOrEqual(before);
  const after = read.next();
  await link.flush();
  await tell(1);
  expect((await after).value).toMatchObject({ what: "lost", sandbox: "sb-0" });
}, 60_000);

test("events say that some may be missing, where the server was killed and is back", async () => {
  await using server = await testServer();
  await using reading = await reader(server);
  const { read, first, link } = reading;
  await server.kill();
  await server.restart();
  expect((await first).value).toMatchObject({ what: "missed" });
  const after = read.next();
  await link.flush();
  await (await teller(server))(1);
  expect((await after).value).toMatchObject({ what: "lost", sandbox: "sb-0" });
}, 60_000);

test("a reader that is too far behind is told once that events are missing, before those that are left", async () => {
  await using server = await testServer();
  const tell = await teller(server);
  await using reading = await reader(server);
  const { read, first, link } = reading;
  await tell(1, "first");
  expect((await first).value).toMatchObject({ sandbox: "first-0" });
  await tell(10_500);
  await tell(1, "last");
  await link.flush();
  const got: (string | undefined)[] = [];
  do {
    const { value } = await read.next();
    got.push(value?.what === "missed" ? "missed" : value?.sandbox);
  } while (got.at(-1) !== "last-0");
  const left = Array.from({ length: 5_500 }, (_, i) => `sb-${i + 5_000}`);
  expect(got).toEqual(["missed", ...left, "last-0"]);
}, 60_000);
