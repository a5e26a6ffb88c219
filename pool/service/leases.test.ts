// Leases: what is not confirmed, not renewed or not there any more is taken back.
import { expect, test } from "bun:test";
import { decode, eventWildcard, newUuidV7, parseSubject } from "../../broker/contract/index.ts";
import { until } from "../../broker/server/testing.ts";
import { errorOf } from "../testing/errors.ts";
import { testMesh } from "../testing/mesh.ts";

test("a grant that nobody confirms is taken back", async () => {
  await using mesh = await testMesh({ confirmMs: 200 });
  const ann = await mesh.caller();
  const grant = await ann.acquire();
  await until("it is removed", () => mesh.provider.made.size === 0 && mesh.provider.removed.length === 1);
  expect(await errorOf(ann.confirm(grant))).toMatchObject({ code: "sandbox_lost", reason: "unconfirmed" });
});

test("a caller that is gone before its grant leaves nothing", async () => {
  await using mesh = await testMesh({ confirmMs: 200 });
  mesh.provider.script = () => ({ create: "wait" });
  const ann = await mesh.caller();
  ann.acquire().catch(() => {});
  await until("it is being created", () => mesh.provider.creating === 1);
  await ann.link.close();
  mesh.provider.proceed();
  await until("it was there and is gone", () => mesh.provider.removed.length === 1);
  expect(mesh.provider.made.size).toBe(0);
});

test("a run that is not renewed lapses with all its sandboxes, and what it waits for", async () => {
  await using mesh = await testMesh({ maxBooting: 2 });
  const ann = await mesh.caller();
  await Promise.all([ann.lease({ lease_ms: 1_000 }), ann.lease({ lease_ms: 1_000 })]);
  mesh.provider.script = () => ({ create: "wait" });
  const waiting = [1, 2, 3].map(() => errorOf(ann.acquire({ lease_ms: 1_000 })));
  const codes = (await Promise.all(waiting)).map(({ code }) => code);
  expect(codes.filter((code) => code === "canceled").length).toBe(1);
  mesh.provider.proceed();
  await until("all is gone", () => mesh.provider.made.size === 0 && mesh.provider.removed.length >= 4);
  expect((await errorOf(ann.renew())).code).toBe("not_found");
});

test("what a killed client waited for ends with its lease, whether it boots, is created or waits for its turn", async () => {
  await using mesh = await testMesh({ maxBooting: 2 });
  const ann = await mesh.caller();
  const scripts = [{ boot: "never" }, { create: "wait" }] as const;
  mesh.provider.script = () => scripts[mesh.provider.created.length] ?? {};
  const run = { run: "killed", renews: true, lease_ms: 1_000 };
  const one = errorOf(ann.acquire(run));
  await until("one boots", () => mesh.provider.made.size === 1);
  const others = [1, 2].map(() => errorOf(ann.acquire(run)));
  const codes = (await Promise.all([one, ...others])).map(({ code }) => code);
  expect(codes.sort()).toEqual(["boot_failed", "boot_failed", "canceled"]);
  mesh.provider.proceed();
  await until("all is gone", () => mesh.provider.creating === 0 && mesh.provider.made.size === 0);
  expect((await ann.status()).queued).toBe(0);
});

test("one renewal keeps all of a run past its lease, and each daemon hears of it", async () => {
  await using mesh = await testMesh();
  const ann = await mesh.caller();
  const [one, two] = await Promise.all([ann.lease({ lease_ms: 1_000 }), ann.lease({ lease_ms: 1_000 })]);
  expect(await ann.renew("run-1", 60_000)).toEqual({ run: "run-1", lease_ms: 60_000, sandboxes: 2 });
  const daemons = [one, two].map(({ sandbox }) => mesh.provider.made.get(sandbox)?.daemon);
  const waits = (least: number) => daemons.every((d) => Number(d?.words.at(-1)?.body.dead_man_ms) > least);
  await until("both heard", () => waits(60_000));
  // A run of its own shows when the first lease would have been over.
  await ann.lease({ run: "short", lease_ms: 1_000 });
  await until("the short one lapsed", () => mesh.provider.removed.length === 1);
  expect((await ann.list({ run: "run-1" })).sandboxes.map(({ state }) => state)).toEqual([
    "leased",
    "leased",
  ]);
});

test("once confirmed, a daemon waits no longer than its lease, though there was more time to confirm", async () => {
  await using mesh = await testMesh({ confirmMs: 30_000 });
  const ann = await mesh.caller();
  const { sandbox } = await ann.lease({ lease_ms: 2_000 });
  const daemon = mesh.provider.made.get(sandbox)?.daemon;
  await until("it is told", () => daemon?.words.at(-1)?.verb === "renew");
  expect(Number(daemon?.words.at(-1)?.body.dead_man_ms)).toBeLessThan(20_000);
});

test("a run that lives on by new acquires tells its older daemons, before they would end themselves", async () => {
  await using mesh = await testMesh();
  const ann = await mesh.caller();
  const old = await ann.lease({ lease_ms: 1_000 });
  await ann.lease({ lease_ms: 3_600_000 });
  const daemon = mesh.provider.made.get(old.sandbox)?.daemon;
  await until("it is told", () => Number(daemon?.words.at(-1)?.body.dead_man_ms) > 3_000_000);
  expect((await ann.list()).sandboxes.length).toBe(2);
});

test("a run that waits for its first sandbox longer than its lease gets a whole lease with it", async () => {
  await using mesh = await testMesh();
  mesh.provider.script = () => ({ create: "wait" });
  const ann = await mesh.caller();
  const bob = await mesh.caller("bob", "other");
  const granted = ann.lease({ lease_ms: 1_000 });
  await until("it is being created", () => mesh.provider.creating === 1);
  mesh.provider.script = () => ({});
  await bob.lease({ lease_ms: 1_000 });
  await until("another run's lease of the same length is over", () => mesh.provider.removed.length === 1);
  mesh.provider.proceed();
  const { sandbox } = await granted;
  expect(await ann.renew("run-1", 60_000)).toMatchObject({ sandboxes: 1 });
  expect((await ann.list()).sandboxes).toMatchObject([{ sandbox, state: "leased" }]);
});

test("a sandbox ends at its longest life, whatever is renewed", async () => {
  await using mesh = await testMesh();
  const ann = await mesh.caller();
  await ann.lease({ max_life_ms: 1_000 });
  await ann.renew("run-1", 3_600_000);
  await until("it is removed", () => mesh.provider.removed.length === 1);
});

test("releasing one generation does not release a later one", async () => {
  await using mesh = await testMesh();
  const ann = await mesh.caller();
  const grant = await ann.lease();
  const old = errorOf(ann.release({ sandbox: grant.sandbox, generation: grant.generation - 1 }));
  expect(await old).toMatchObject({
    code: "lease_lost",
    message: `the sandbox has generation ${grant.generation} by now, not ${grant.generation - 1}`,
  });
  expect(await ann.release({ sandbox: grant.sandbox, generation: grant.generation })).toEqual({
    released: 1,
    known: 1,
  });
});

test("a release of what never was is told from one of what is gone already", async () => {
  await using mesh = await testMesh();
  const ann = await mesh.caller();
  const { sandbox } = await ann.lease();
  await ann.release({ sandbox });
  expect(await ann.release({ sandbox })).toMatchObject({ released: 0, known: 1 });
  expect(await ann.release({ sandbox: "sb-0000000000000" })).toMatchObject({ released: 0, known: 0 });
});

test("a release that is asked again while the removal goes on does not say that nothing was released", async () => {
  await using mesh = await testMesh();
  mesh.provider.script = () => ({ removeFailures: 2 });
  const ann = await mesh.caller();
  const { sandbox } = await ann.lease();
  const answers = await Promise.all([ann.release({ sandbox }), ann.release({ sandbox })]);
  expect(answers).toEqual([
    { released: 1, known: 1 },
    { released: 1, known: 1 },
  ]);
});

test("a release that is asked again under its id, after all is gone, counts what the first one ended", async () => {
  await using mesh = await testMesh();
  const ann = await mesh.caller();
  const { sandbox } = await ann.lease();
  await ann.lease();
  const [first, ofRun] = [newUuidV7(), newUuidV7()];
  const one = { released: 1, known: 1 };
  for (const _ of [1, 2]) expect(await ann.release({ sandbox, id: first })).toEqual(one);
  // Another release ends nothing more.
  expect(await ann.release({ sandbox, id: newUuidV7() })).toEqual({ released: 0, known: 1 });
  for (const _ of [1, 2]) expect(await ann.release({ run: "run-1", id: ofRun })).toEqual(one);
  // Another tenant's of the same id is another one.
  const eve = await mesh.caller("eve", "zenith");
  expect(await eve.release({ run: "run-1", id: ofRun })).toEqual({ released: 0, known: 0 });
});

test("a release under an id that was used for something else is a conflict, and ends nothing", async () => {
  await using mesh = await testMesh();
  const ann = await mesh.caller();
  const [gone, held] = [await ann.lease(), await ann.lease()];
  const id = newUuidV7();
  const one = { released: 1, known: 1 };
  const ofGone = { sandbox: gone.sandbox, id };
  expect(await ann.release(ofGone)).toEqual(one);
  for (const other of [
    { sandbox: held.sandbox },
    { lease: held.lease },
    { run: "run-1" },
    { sandbox: gone.sandbox, generation: gone.generation },
  ])
    expect(await errorOf(ann.release({ ...other, id }))).toMatchObject({ code: "conflict", field: "id" });
  // It is the same release, whether it is waited for or not.
  expect(await ann.release({ ...ofGone, wait: false })).toEqual(one);
  expect(await ann.release({ sandbox: held.sandbox, id: newUuidV7() })).toEqual(one);
});

test("a removal that fails is tried until it succeeds, and only then is the release answered", async () => {
  await using mesh = await testMesh();
  mesh.provider.script = () => ({ removeFailures: 4 });
  const ann = await mesh.caller();
  const { sandbox } = await ann.lease();
  expect(await ann.release({ sandbox })).toMatchObject({ released: 1, known: 1 });
  expect(mesh.provider.removed).toEqual([sandbox]);
  expect(mesh.pool.counters.removeFailures).toBe(4);
});

test("a release that takes too long is answered with an error, and the duty stays", async () => {
  await using mesh = await testMesh({ releaseAnswerMs: 100, removeTimeoutMs: 150 });
  const hang = { removeHangs: true };
  mesh.provider.script = () => hang;
  const ann = await mesh.caller();
  const { sandbox } = await ann.lease();
  expect((await errorOf(ann.release({ sandbox }))).code).toBe("provider_failed");
  expect(mesh.provider.made.size).toBe(1);
  hang.removeHangs = false;
  await until("it is removed all the same", () => mesh.provider.made.size === 0);
});

test("wait: false answers before the removal, wait: true after it", async () => {
  await using mesh = await testMesh({ removeTimeoutMs: 60_000 });
  const hang = { removeHangs: true };
  mesh.provider.script = () => hang;
  const ann = await mesh.caller();
  const { sandbox } = await ann.lease();
  expect(await ann.release({ sandbox, wait: false })).toMatchObject({ released: 1, known: 1 });
  expect(mesh.provider.made.size).toBe(1);
});

test("a daemon that goes away is lost after the grace, one that comes back is not", async () => {
  await using mesh = await testMesh();
  const ann = await mesh.caller();
  const [stays, goes] = await Promise.all([ann.lease(), ann.lease()]);
  const back = mesh.provider.made.get(stays.sandbox)?.daemon;
  await back?.close();
  const again = await back?.connect();
  await mesh.provider.made.get(goes.sandbox)?.daemon.close();
  await until("the other one is lost", () => mesh.provider.removed.length === 1);
  expect(mesh.provider.removed).toEqual([goes.sandbox]);
  expect(mesh.pool.counters.ended).toEqual({ disconnected: 1 });
  expect((await ann.list()).sandboxes.map(({ sandbox }) => sandbox)).toEqual([stays.sandbox]);
  await again?.close();
});

test("losses are told to the run's listeners, with the reason", async () => {
  await using mesh = await testMesh();
  const ann = await mesh.caller();
  const told: unknown[] = [];
  ann.link.subscribe(eventWildcard("acme"), ({ subject, data }) => {
    const parsed = parseSubject(subject);
    if (parsed?.kind === "event" && parsed.scope === "run") told.push(decode(data));
  });
  await ann.link.flush();
  const { sandbox, lease } = await ann.lease();
  const uid = mesh.provider.made.get(sandbox)?.uid ?? "";
  mesh.provider.tell({ type: "lost", sandbox, uid, reason: "oom", message: "out of memory" });
  await until("lost", () => told.some((event) => (event as { what: string }).what === "lost"));
  expect(told.map((event) => (event as { what: string }).what)).toEqual([
    "creating",
    "granted",
    "leased",
    "lost",
  ]);
  expect(told.at(-1)).toMatchObject({ what: "lost", sandbox, lease, run: "run-1", reason: "oom" });
});

test("what the provider has and nobody knows is removed, what is known and not there is lost", async () => {
  await using mesh = await testMesh({ reconcileMs: 100 });
  const ann = await mesh.caller();
  const { sandbox } = await ann.lease();
  mesh.provider.plant("sb-orphan", sandbox);
  await until("the orphan is removed", () => mesh.provider.removed.includes("sb-orphan"));
  mesh.provider.made.delete(sandbox);
  await until("the other is lost", async () => (await ann.list()).sandboxes.length === 0);
  expect(mesh.pool.counters.orphansRemoved).toBe(1);
  expect(mesh.pool.counters.ended).toEqual({ deleted: 1 });
});

test("what is remembered of ended sandboxes is forgotten after its time, also in the records", async () => {
  await using mesh = await testMesh({ tombstoneMs: 200 });
  const ann = await mesh.caller();
  const id = newUuidV7();
  await ann.lease({ id });
  await ann.release({ lease: id });
  expect((await errorOf(ann.acquire({ id }))).code).toBe("sandbox_lost");
  await until("the record is gone", () => mesh.records.sandboxes.size === 0);
  expect(mesh.pool.counters.states.gone).toBe(0);
});
