// Acquire, renew, release and the ways out, against a real server and a real pool.
import { expect, test } from "bun:test";
import { newUuidV7, SandboxLostError } from "../../broker/contract/index.ts";
import { until } from "../../broker/server/testing.ts";
import { type TestMesh, testMesh } from "../../pool/testing/mesh.ts";
import { Mesh } from "./mesh.ts";
import { AcquireTimeoutError, CanceledError, InvalidRequestError, LeaseLostError } from "./mod.ts";
import { resolveSettings } from "./settings.ts";
import { connectTo, credentialsOf } from "./testing/harness.ts";
import { Caller } from "./wire/caller.ts";
import { openLink, SERVER_GONE_MS } from "./wire/open.ts";
import { Pulse } from "./wire/pulse.ts";

const SPEC = { image: "host" } as const;

test("what was acquired is listed, and gone when the release returns", async () => {
  await using pool = await testMesh();
  await using mesh = await connectTo(pool.server);
  const box = await mesh.acquire({ ...SPEC, memory: "512MiB", cpu: 0.5 });
  expect((await mesh.list()).map((view) => [view.sandbox, view.state])).toEqual([[box.id, "leased"]]);
  expect(pool.provider.made.get(box.id)?.request.spec.memory_bytes).toBe(512 * 1024 * 1024);
  await box.release();
  expect(pool.provider.made.size).toBe(0);
  expect(box.lost).toBeInstanceOf(SandboxLostError);
  // A second release, and one by id, succeed.
  await box.release();
  expect(await mesh.release(box.id)).toBe(0);
});

test("a signal ends the waiting for a release, and not the release", async () => {
  await using pool = await testMesh();
  await using mesh = await connectTo(pool.server);
  const run = mesh.run("aborted");
  const box = await mesh.acquire(SPEC);
  const boxes = await run.acquireMany(2, SPEC);
  const signal = AbortSignal.abort("enough");
  const release = [
    () => box.release({ signal }),
    () => run.release({ signal }),
    () => mesh.release(box, { signal }),
  ];
  for (const each of release) {
    const error: unknown = await each().catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(CanceledError);
    expect((error as CanceledError).cause).toBe("enough");
  }
  await until("all are gone", () => pool.provider.made.size === 0);
  expect(boxes.every((each) => each.lost instanceof SandboxLostError)).toBe(true);
});

test("closing the connection leaves nothing, also what is still being acquired", async () => {
  await using pool = await testMesh();
  const mesh = await connectTo(pool.server);
  await mesh.acquireMany(3, SPEC);
  await mesh.run("other").acquire(SPEC);
  pool.provider.script = () => ({ create: "wait" });
  const late = mesh.acquire(SPEC).catch((error: unknown) => error);
  await until("the create is under way", () => pool.provider.creating === 1);
  await mesh.close();
  expect(await late).toBeInstanceOf(CanceledError);
  pool.provider.proceed();
  await until("all is reclaimed", () => pool.provider.made.size === 0);
});

test("closing waits until what was aborted, has failed or is being released is gone, too", async () => {
  await using pool = await testMesh();
  const mesh = await connectTo(pool.server);
  pool.provider.script = () => ({ removeFailures: 2 });
  const box = await mesh.acquire({ ...SPEC, run: "released" });
  pool.provider.script = () => ({ boot: "never", removeFailures: 2 });
  const control = new AbortController();
  const aborted = mesh.acquire({ ...SPEC, run: "aborted", signal: control.signal });
  const caught = aborted.catch((error: unknown) => error);
  const late = await mesh.acquire({ ...SPEC, timeout: "500ms" }).catch((error: unknown) => error);
  expect(late).toBeInstanceOf(AcquireTimeoutError);
  control.abort();
  expect(await caught).toBeInstanceOf(CanceledError);
  const releasing = box.release();
  await mesh.close();
  expect(pool.provider.created.length).toBe(3);
  expect(pool.provider.made.size).toBe(0);
  await releasing.catch(() => undefined);
});

test("an acquire that is aborted, or takes too long, is taken back", async () => {
  await using pool = await testMesh();
  await using mesh = await connectTo(pool.server);
  pool.provider.script = () => ({ boot: "never" });
  const control = new AbortController();
  const aborted = mesh.acquire({ ...SPEC, signal: control.signal }).catch((error: unknown) => error);
  await until("it was created", () => pool.provider.made.size === 1);
  control.abort();
  expect(await aborted).toBeInstanceOf(CanceledError);
  const late = await mesh.acquire({ ...SPEC, timeout: "500ms" }).catch((error: unknown) => error);
  expect(late).toBeInstanceOf(AcquireTimeoutError);
  await until("both are reclaimed", () => pool.provider.made.size === 0);
});

test("the same id answers the same sandbox", async () => {
  await using pool = await testMesh();
  await using mesh = await connectTo(pool.server);
  const id = newUuidV7();
  const run = "same";
  const one = await mesh.acquire({ ...SPEC, id, run });
  const two = await mesh.acquire({ ...SPEC, id, run });
  expect(one.id).toBe(two.id);
  expect(pool.provider.created.length).toBe(1);
});

test("a run ends all at once, also what another client acquired in it", async () => {
  await using pool = await testMesh();
  await using ann = await connectTo(pool.server);
  await using bob = await connectTo(pool.server, {}, "bob");
  await using run = ann.run("shared");
  const mine = await run.acquireMany(2, SPEC);
  const his = await bob.acquire({ ...SPEC, run: "shared" });
  expect((await run.list()).length).toBe(3);
  expect(await run.release()).toBe(3);
  expect(pool.provider.made.size).toBe(0);
  await until("bob learns of it", () => his.lost !== undefined);
  expect(mine.every((box) => box.lost instanceof SandboxLostError)).toBe(true);
});

test("too few of many are given back", async () => {
  await using pool = await testMesh();
  await using mesh = await connectTo(pool.server);
  let created = 0;
  pool.provider.script = () => (++created === 2 ? { create: "fail" } : {});
  const failure = await mesh.acquireMany(3, SPEC).catch((error: unknown) => error);
  expect(failure).toBeInstanceOf(Error);
  expect(pool.provider.made.size).toBe(0);
  created = 0;
  expect((await mesh.acquireMany(3, { ...SPEC, atLeast: 2 })).length).toBe(2);
});

test("more of many than are asked for is the caller's mistake, told before any is made", async () => {
  await using pool = await testMesh();
  await using mesh = await connectTo(pool.server);
  for (const atLeast of [4, -1, 0.5, Number.NaN, "2" as never])
    await expect(mesh.acquireMany(3, { ...SPEC, atLeast })).rejects.toMatchObject({
      code: "invalid_request",
      field: "atLeast",
    });
  expect(pool.provider.made.size).toBe(0);
});

/** Until the lease of one has passed that nobody renews. */
async function renewsAllButTheDetached(mesh: Mesh, pool: TestMesh): Promise<void> {
  const kept = await mesh.acquire({ ...SPEC, run: "kept" });
  const left = await mesh.acquire({ ...SPEC, run: "left" });
  left.detach();
  await until("the detached one lapses", () => !pool.provider.made.has(left.id), 20_000);
  expect(pool.provider.made.has(kept.id)).toBe(true);
  expect(kept.lost).toBeUndefined();
}

test("renewal keeps a short lease for long, and a detached sandbox lapses", async () => {
  await using pool = await testMesh();
  await using mesh = await connectTo(pool.server, { lease: "1s" });
  await renewsAllButTheDetached(mesh, pool);
});

test("a short lease is renewed before the renewing thread is connected, however long that takes", async () => {
  await using pool = await testMesh();
  // Where the thread goes: a server that accepts, and says nothing.
  const silent = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data: () => undefined } });
  try {
    const where = { url: pool.server.url, credentials: credentialsOf(pool.server) };
    const settings = await resolveSettings(where, process.env);
    const link = await openLink(settings, { name: "sdk", timeoutMs: 10_000, goneAfterMs: SERVER_GONE_MS });
    const elsewhere = { ...settings, urls: [`nats://127.0.0.1:${silent.port}`] };
    const options = { handleSignals: false, lease: "1s" };
    await using mesh = new Mesh(elsewhere, new Caller(link), new Pulse(), options);
    await renewsAllButTheDetached(mesh, pool);
  } finally {
    silent.stop(true);
  }
});

test("closing ends what is held, and not what was detached from the same run", async () => {
  await using pool = await testMesh();
  const mesh = await connectTo(pool.server);
  const [held, detached] = await mesh.acquireMany(2, SPEC);
  detached?.detach();
  await mesh.close();
  expect(pool.provider.made.has(held?.id ?? "")).toBe(false);
  expect(pool.provider.made.has(detached?.id ?? "")).toBe(true);
});

test("a sandbox that the infrastructure loses is known as lost at once", async () => {
  await using pool = await testMesh();
  await using mesh = await connectTo(pool.server);
  const box = await mesh.acquire(SPEC);
  const uid = pool.provider.made.get(box.id)?.uid ?? "";
  const told = new Promise<Error>((go) => box.onLost(go));
  pool.provider.tell({ type: "lost", sandbox: box.id, uid, reason: "oom", message: "out of memory" });
  const error = await told;
  expect(error).toBeInstanceOf(SandboxLostError);
  expect(box.lost).toMatchObject({ code: "sandbox_lost", reason: "oom", sandbox: box.id });
  const failure = await box.exec("true").catch((thrown: unknown) => thrown);
  expect(failure).toMatchObject({ code: "sandbox_lost", started: "no" });
});

test("a run that the pool does not know any more loses its sandboxes here too", async () => {
  await using pool = await testMesh();
  await using mesh = await connectTo(pool.server, { lease: "1s" });
  const box = await mesh.acquire({ ...SPEC, run: "gone" });
  // As if the event had not come: the pool forgets, and says nothing.
  await pool.pool.close();
  pool.records.sandboxes.clear();
  pool.records.runs.clear();
  await pool.start();
  await until("the renewal is refused", () => box.lost !== undefined, 20_000);
  expect(box.lost).toBeInstanceOf(LeaseLostError);
});

test("with the server gone for a lease and longer the sandbox is known as lost at once, and closing still releases it", async () => {
  await using pool = await testMesh();
  const mesh = await connectTo(pool.server, { lease: "1s" });
  await using _closed = { [Symbol.asyncDispose]: () => mesh.close().catch(() => undefined) };
  const box = await mesh.acquire(SPEC);
  const told = new Promise<Error>((go) => box.onLost(go));
  const running = box.exec("sleep 600").catch((thrown: unknown) => thrown);
  await pool.server.kill();
  const lost = { code: "sandbox_lost", reason: "expired", sandbox: box.id };
  expect(await told).toMatchObject(lost);
  expect((await told).message).toMatch(/its lease of 1 s could not be renewed for 1\d/);
  expect(await running).toMatchObject({ ...lost, started: "unknown" });
  expect(await box.files.stat("x").catch((thrown: unknown) => thrown)).toMatchObject(lost);
  // The provider double's does not end by itself.
  await pool.server.restart();
  await mesh.close();
  expect(pool.provider.made.size).toBe(0);
}, 60_000);

test("closing says what a release before it, for want of the server, has left to its lease", async () => {
  await using pool = await testMesh();
  const mesh = await connectTo(pool.server, { lease: "60s" });
  await using _closed = { [Symbol.asyncDispose]: () => mesh.close().catch(() => undefined) };
  const boxes = await mesh.acquireMany(2, SPEC);
  await pool.server.kill();
  const releasing = boxes.map((box) => box.release().catch((thrown: unknown) => thrown));
  const gone = { code: "connection_failed", reason: "server_gone" };
  expect(await Promise.all(releasing)).toEqual([
    expect.objectContaining(gone),
    expect.objectContaining(gone),
  ]);
  const closing = await mesh.close().catch((thrown: unknown) => thrown);
  expect(closing).toMatchObject(gone);
  for (const { id } of boxes) expect((closing as Error).message).toContain(id);
}, 60_000);

test("a run may be closed after its connection", async () => {
  await using pool = await testMesh();
  const mesh = await connectTo(pool.server);
  const run = mesh.run();
  await run.acquireMany(2, SPEC);
  await mesh.close();
  expect(pool.provider.made.size).toBe(0);
  await run.close();
  await mesh.close();
});

test("a spec at fault is refused before it is sent, with the field", async () => {
  await using pool = await testMesh();
  await using mesh = await connectTo(pool.server);
  for (const [options, field] of [
    [{ image: "" }, "image"],
    [{ image: "host", memory: "lots" }, "memory"],
    [{ image: "host", timeout: "30" }, "timeout"],
    [{ image: "host", memroy: "1g" }, "memroy"],
  ] as const) {
    const failure = await mesh.acquire(options as { image: string }).catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(InvalidRequestError);
    expect(failure).toMatchObject({ field });
  }
});

test("events tell a sandbox's life, of one run only where asked", async () => {
  await using pool = await testMesh();
  await using mesh = await connectTo(pool.server);
  const seen: string[] = [];
  const control = new AbortController();
  const listening = (async () => {
    for await (const event of mesh.events({ run: "told", signal: control.signal })) seen.push(event.what);
  })().catch((error: unknown) => error);
  await mesh.status();
  await (await mesh.acquire({ ...SPEC, run: "other" })).release();
  await (await mesh.acquire({ ...SPEC, run: "told" })).release();
  await until("the release is told", () => seen.includes("released"));
  control.abort();
  expect(await listening).toBeInstanceOf(CanceledError);
  expect(seen.filter((what) => what === "granted").length).toBe(1);
});
