// What happened while the connection was away is not told by anybody: it is asked for, or said to be missing.
import { expect, test } from "bun:test";
import { decode, encode, runEventSubject } from "../../broker/contract/index.ts";
import { connect } from "../../broker/link/connect.ts";
import { type TestServer, testServer, until } from "../../broker/server/testing.ts";
import { testMesh } from "../../pool/testing/mesh.ts";
import { cuttable } from "../../test/cuttable.ts";
import { type EventFilter, events } from "./events.ts";
import { connectTo } from "./testing/harness.ts";
import { Caller } from "./wire/caller.ts";

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

/** A reader of them, whose first step the server has heard of. */
async function reader(server: TestServer, filter: EventFilter = {}, url = server.url) {
  const link = await connect({
    urls: [url],
    credentials: server.keys.mintUser({ tenant: "acme", user: "ann" }),
  });
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
  const view = { generation: 1, image: "host", provider: "played", age_ms: 1, run: mesh.defaultRun };
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
