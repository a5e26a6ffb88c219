// A pool in this process against a real nats-server; the provider is a double, since its failures are the point.
import { expect, test } from "bun:test";
import { eventWildcard, Grant, newUuidV7, PoolUnavailableError } from "../../broker/contract/index.ts";
import { until } from "../../broker/server/testing.ts";
import { errorOf } from "../testing/errors.ts";
import { testMesh } from "../testing/mesh.ts";

test("acquire, confirm, list, release: one sandbox comes and is verified gone", async () => {
  await using mesh = await testMesh();
  const ann = await mesh.caller();
  const grant = await ann.acquire();
  expect(grant).toMatchObject({ run: "run-1", generation: 2, provider: "double" });
  expect(grant.timeline.ready_ms).toBeGreaterThanOrEqual(grant.timeline.enrolled_ms);
  const daemon = mesh.provider.made.get(grant.sandbox)?.daemon;
  const [word] = await until("the daemon heard of it", () => daemon?.words.length === 1 && daemon.words);
  expect(word).toMatchObject({ verb: "grant", body: { lease: grant.lease, generation: 2 } });
  expect(await ann.confirm(grant)).toEqual({ sandbox: grant.sandbox });
  const { sandboxes } = await ann.list();
  expect(sandboxes).toMatchObject([
    { sandbox: grant.sandbox, state: "leased", image: "host", lease: grant.lease },
  ]);
  expect(await ann.release({ sandbox: grant.sandbox })).toMatchObject({ released: 1 });
  expect(mesh.provider.made.size).toBe(0);
  expect((await ann.list()).sandboxes).toEqual([]);
  expect(await ann.release({ sandbox: grant.sandbox })).toMatchObject({ released: 0 });
});

test("a field of the spec that is none is told in the grant, not only ignored", async () => {
  await using mesh = await testMesh();
  const ann = await mesh.caller();
  const spec = { image: "host", memroy_bytes: 1 << 30 };
  const request = { version: 1, id: newUuidV7(), run: "run-1", spec };
  const grant = await ann.ask("acquire", request, Grant);
  expect(grant.warnings).toEqual(["spec.memroy_bytes: there is no such field; it was ignored"]);
});

test("the same acquire twice, at once and later, is one sandbox with one grant", async () => {
  await using mesh = await testMesh();
  const ann = await mesh.caller();
  const ask = { id: newUuidV7() };
  // The answer goes to the last who asked, so that the first gets none.
  const first = ann.acquire(ask, 300).catch(() => undefined);
  const second = await ann.acquire(ask);
  await first;
  expect(await ann.acquire(ask)).toEqual(second);
  await ann.confirm(second);
  expect(await ann.acquire(ask)).toEqual(second);
  expect(mesh.provider.created).toEqual([second.sandbox]);
  const other = await errorOf(ann.acquire({ ...ask, image: "other" }));
  expect(other.code).toBe("conflict");
});

test("several that ask under one id at once all get its one sandbox at once, or all the same error", async () => {
  await using mesh = await testMesh({ maxBooting: 1 });
  const [ann, again] = await Promise.all([mesh.caller(), mesh.caller()]);
  mesh.provider.script = () => ({ create: "wait" });
  const booting = newUuidV7();
  const waiting = newUuidV7();
  const refused = newUuidV7();
  // Each only once: who is not answered now would ask again much later.
  const ask = (id: string) => [ann, ann, again].map((caller) => caller.acquire({ id }, 10_000));
  const first = ask(booting);
  await until("it is being created", () => mesh.provider.creating === 1);
  const second = ask(waiting);
  const third = ask(refused).map(errorOf);
  await until("they wait", async () => (await ann.status()).queued === 2);
  await ann.release({ lease: refused });
  expect((await Promise.all(third)).map(({ code }) => code)).toEqual(["canceled", "canceled", "canceled"]);
  mesh.provider.script = () => ({});
  mesh.provider.proceed();
  for (const asked of [first, second]) {
    const grants = await Promise.all(asked);
    expect(new Set(grants.map(({ sandbox }) => sandbox)).size).toBe(1);
    await Promise.all(grants.map((grant) => ann.confirm(grant)));
  }
  expect(mesh.provider.created.length).toBe(2);
}, 20_000);

test("a request that is refused lets go of nobody who waits under its id: all are told when the records fail", async () => {
  await using mesh = await testMesh();
  const ann = await mesh.caller();
  mesh.provider.script = () => ({ create: "wait" });
  const id = newUuidV7();
  const ask = () => errorOf(ann.acquire({ id }, 10_000));
  const asked = [ask()];
  await until("it is being created", () => mesh.provider.creating === 1);
  // As many addresses as are kept; the last request of the same connection is handled after them.
  for (let i = 1; i < 16; i++) asked.push(ask());
  expect((await errorOf(ann.acquire({ id, image: "other" }))).code).toBe("conflict");
  mesh.records.trouble(new PoolUnavailableError("the disk is full", { reason: "records" }));
  expect((await Promise.all(asked)).map(({ code }) => code)).toEqual(asked.map(() => "pool_unavailable"));
}, 20_000);

test("an acquire whose sandbox has ended hears so, and no second one comes of asking again", async () => {
  await using mesh = await testMesh();
  const ann = await mesh.caller();
  const ask = { id: newUuidV7() };
  const grant = await ann.lease(ask);
  await ann.release({ lease: grant.lease });
  expect(await errorOf(ann.acquire(ask))).toMatchObject({ code: "sandbox_lost", reason: "released" });
  expect(mesh.provider.created.length).toBe(1);
});

test("tenants neither see nor release each other's sandboxes", async () => {
  await using mesh = await testMesh();
  const ann = await mesh.caller();
  const eve = await mesh.caller("eve", "other");
  const grant = await ann.lease();
  expect((await eve.list()).sandboxes).toEqual([]);
  expect(await eve.release({ sandbox: grant.sandbox })).toMatchObject({ released: 0 });
  expect(await eve.release({ run: "run-1" })).toMatchObject({ released: 0 });
  expect((await errorOf(eve.confirm(grant))).code).toBe("not_found");
  expect((await errorOf(eve.renew())).code).toBe("not_found");
  expect((await ann.list()).sandboxes.length).toBe(1);
});

test("no more boot at once than the bound, and all of them come in the end", async () => {
  await using mesh = await testMesh({ maxBooting: 3 });
  const ann = await mesh.caller();
  const grants = await Promise.all(Array.from({ length: 20 }, () => ann.acquire()));
  expect(new Set(grants.map(({ sandbox }) => sandbox)).size).toBe(20);
  expect(mesh.provider.mostCreating).toBeLessThanOrEqual(3);
  expect(await ann.release({ run: "run-1" })).toMatchObject({ released: 20 });
  expect(mesh.provider.made.size).toBe(0);
});

test("a run that came later with few is not behind a run with many", async () => {
  await using mesh = await testMesh({ maxBooting: 1 });
  const ann = await mesh.caller();
  const order: string[] = [];
  const of = (run: string) => ann.acquire({ run }).then(() => order.push(run));
  const all = [
    ...Array.from({ length: 12 }, () => of("big")),
    ...Array.from({ length: 3 }, () => of("small")),
  ];
  await Promise.all(all);
  expect(order.lastIndexOf("small")).toBeLessThan(8);
});

test("a full queue refuses at once, and says whose it is", async () => {
  await using mesh = await testMesh({
    maxBooting: 1,
    maxQueuedPerTenant: 2,
    maxQueued: 3,
    maxSandboxesPerTenant: 50,
  });
  mesh.provider.script = () => ({ create: "wait" });
  const ann = await mesh.caller();
  const bob = await mesh.caller("bob", "other");
  const waiting = [ann.acquire()];
  await until("the first is being created", () => mesh.provider.creating === 1);
  waiting.push(ann.acquire(), ann.acquire());
  await until("two wait", async () => (await ann.status()).queued === 2);
  expect(await errorOf(ann.acquire())).toMatchObject({ code: "queue_full" });
  waiting.push(bob.acquire());
  await until("three wait", async () => (await ann.status()).queued === 3);
  expect((await errorOf(bob.acquire())).message).toContain("of the pool");
  mesh.provider.script = () => ({});
  mesh.provider.proceed();
  expect((await Promise.all(waiting)).length).toBe(4);
});

test("a tenant's quota counts what waits and what lives", async () => {
  await using mesh = await testMesh({ maxSandboxesPerTenant: 2 });
  const ann = await mesh.caller();
  await Promise.all([ann.lease(), ann.lease()]);
  expect((await errorOf(ann.acquire())).code).toBe("quota_exceeded");
  await ann.release({ run: "run-1" });
  await ann.lease();
});

test("an acquire that waits too long says where it stood, and leaves nothing", async () => {
  await using mesh = await testMesh({ maxBooting: 1 });
  mesh.provider.script = () => ({ create: "wait" });
  const ann = await mesh.caller();
  const [creating, queued] = await Promise.all([
    errorOf(ann.acquire({ timeout_ms: 400 })),
    errorOf(ann.acquire({ timeout_ms: 200 })),
  ]);
  expect(creating).toMatchObject({ code: "acquire_timeout", reason: "creating" });
  expect(queued).toMatchObject({ code: "acquire_timeout", reason: "queued" });
  // The provider's create comes to its end late, and with it a sandbox that nobody wants.
  mesh.provider.proceed();
  await until(
    "the late one is removed",
    () => mesh.provider.created.length === 1 && mesh.provider.made.size === 0,
  );
  await until("its record says gone", () => mesh.records.states().every((state) => state === "gone"));
});

test("a create that fails is answered with the provider's error, and removed", async () => {
  await using mesh = await testMesh();
  mesh.provider.script = () => ({ create: "fail" });
  const ann = await mesh.caller();
  expect(await errorOf(ann.acquire())).toMatchObject({ code: "provider_failed", reason: "on_demand" });
  await until("removed", () => mesh.provider.removed.length === 1);
});

test("a sandbox that never becomes ready fails its acquire in time", async () => {
  await using mesh = await testMesh({ bootTimeoutMs: 300 });
  mesh.provider.script = () => ({ boot: "never" });
  const ann = await mesh.caller();
  expect(await errorOf(ann.acquire())).toMatchObject({ code: "boot_failed", reason: "boot_timeout" });
  await until("removed", () => mesh.provider.made.size === 0);
});

test("a provider that says it will not start ends the wait at once, with its word", async () => {
  await using mesh = await testMesh();
  mesh.provider.script = () => ({ boot: "never" });
  const ann = await mesh.caller();
  const failed = errorOf(ann.acquire());
  const [sandbox = ""] = await until(
    "created",
    () => mesh.provider.made.size === 1 && [...mesh.provider.made.keys()],
  );
  const uid = mesh.provider.made.get(sandbox)?.uid ?? "";
  mesh.provider.tell({
    type: "failed",
    sandbox,
    uid,
    code: "image_error",
    reason: "no_such_image",
    message: "no image",
  });
  expect(await failed).toMatchObject({ code: "image_error", reason: "no_such_image", message: "no image" });
});

test("a spec that the provider cannot do is refused before anything is created", async () => {
  await using mesh = await testMesh();
  mesh.provider.refuseSpec.add("bad");
  const ann = await mesh.caller();
  expect((await errorOf(ann.acquire({ image: "bad" }))).message).toContain("bad is refused");
  const elsewhere = ann.acquire({ spec: { image: "host", provider: "nowhere" } });
  expect(await errorOf(elsewhere)).toMatchObject({ code: "unsupported", field: "spec.provider" });
  expect(mesh.provider.created).toEqual([]);
});

test("releasing an acquire that still waits cancels it", async () => {
  await using mesh = await testMesh({ maxBooting: 1 });
  mesh.provider.script = () => ({ create: "wait" });
  const ann = await mesh.caller();
  const first = { id: newUuidV7() };
  const second = { id: newUuidV7() };
  const answers = [errorOf(ann.acquire(first)), errorOf(ann.acquire(second))];
  await until("one is created, one waits", async () => (await ann.status()).queued === 1);
  expect(await ann.release({ lease: second.id })).toMatchObject({ released: 0 });
  const released = ann.release({ lease: first.id });
  mesh.provider.proceed();
  expect(await released).toMatchObject({ released: 1 });
  for (const answer of answers) expect((await answer).code).toBe("canceled");
  await until("nothing is left", () => mesh.provider.made.size === 0);
});

test("an acquire that its release has overtaken is not begun, for nobody is left to take it", async () => {
  await using mesh = await testMesh();
  const [ann, bob] = await Promise.all([mesh.caller(), mesh.caller("bob", "other")]);
  const id = newUuidV7();
  expect(await ann.release({ lease: id })).toEqual({ released: 0, known: 0 });
  expect((await errorOf(ann.acquire({ id }))).code).toBe("canceled");
  expect((await errorOf(ann.acquire({ id, run: "run-2" }))).code).toBe("canceled");
  expect(mesh.provider.created).toEqual([]);
  // Of another tenant's no word counts.
  expect((await bob.acquire({ id })).lease).toBe(id);
});

test("a draining pool takes no acquires, and all can be released", async () => {
  await using mesh = await testMesh();
  const ann = await mesh.caller();
  const root = await mesh.operator();
  await ann.lease();
  expect(await root.drain()).toMatchObject({ draining: true, remaining: 1 });
  expect((await errorOf(ann.acquire())).code).toBe("draining");
  await root.drain({ release_all: true });
  await until("all is gone", () => mesh.provider.made.size === 0);
  expect(await root.drain({ on: false })).toMatchObject({ draining: false });
  await ann.lease();
});

test("who has nothing, but has asked the pool, is told that it is draining", async () => {
  await using mesh = await testMesh();
  const [ann, root] = await Promise.all([mesh.caller("ann", "other"), mesh.operator()]);
  await ann.status();
  const told: string[] = [];
  ann.link.subscribe(eventWildcard("other"), ({ subject }) => told.push(subject));
  await ann.link.flush();
  await root.drain();
  await until("it is told", () => told.includes("evt.v1.other.pool.draining"));
});

test("a list goes in pages, each sandbox once", async () => {
  await using mesh = await testMesh();
  const ann = await mesh.caller();
  await Promise.all(Array.from({ length: 7 }, () => ann.lease()));
  const seen: string[] = [];
  let after: string | undefined;
  do {
    const page = await ann.list({ limit: 3, ...(after === undefined ? {} : { after }) });
    seen.push(...page.sandboxes.map(({ sandbox }) => sandbox));
    after = page.next;
  } while (after !== undefined);
  expect(new Set(seen).size).toBe(7);
  expect(seen).toEqual([...seen].sort());
});
