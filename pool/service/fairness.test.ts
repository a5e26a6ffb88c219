// Many at once: nobody starves another, and a burst that is cut short leaves nothing.
import { expect, test } from "bun:test";
import { until } from "../../broker/server/testing.ts";
import { errorOf } from "../testing/errors.ts";
import { testMesh } from "../testing/mesh.ts";

test("10 of one run are not behind the 5,000 of another", async () => {
  await using mesh = await testMesh({ maxBooting: 4, reservedBooting: 0 });
  const [ann, bob] = await Promise.all([mesh.caller(), mesh.caller()]);
  const many = Array.from({ length: 5_000 }, () =>
    errorOf(ann.acquire({ run: "many" }, 60_000)).catch(() => undefined),
  );
  await until("all of it waits or boots", async () => {
    const { queued } = await ann.status();
    return queued + mesh.provider.created.length >= 5_000 - 4;
  });
  await Promise.all(Array.from({ length: 10 }, () => bob.lease({ run: "few" })));
  // Turn by turn: as many of the others, and what was on its way.
  const begunOfMany = 5_000 - (await ann.status()).queued;
  expect(begunOfMany).toBeLessThan(1_000);
  await ann.release({ run: "many" });
  const ended = await Promise.all(many);
  expect(ended.filter((error) => error?.code === "canceled").length).toBeGreaterThan(4_000);
  await bob.release({ run: "few" });
  expect(mesh.provider.made.size).toBe(0);
}, 60_000);

test("a run whose sandboxes hang in their boot keeps no other from beginning", async () => {
  await using mesh = await testMesh({ maxBooting: 8 });
  mesh.provider.script = ({ run }) => ({ boot: run === "hangs" ? "never" : "ready" });
  const ann = await mesh.caller();
  const hung = Array.from({ length: 40 }, () => errorOf(ann.acquire({ run: "hangs" }, 60_000)));
  await until("it has all that it may", () => mesh.provider.made.size === 6);
  await Promise.all(Array.from({ length: 10 }, () => ann.lease({ run: "boots" })));
  expect(mesh.provider.made.size).toBe(16);
  await ann.release({ run: "hangs" });
  expect(new Set((await Promise.all(hung)).map(({ code }) => code))).toEqual(new Set(["canceled"]));
});

test("a tenant whose sandboxes hang in their boot, in however many runs, keeps no other tenant from beginning", async () => {
  await using mesh = await testMesh({ maxBooting: 16 });
  mesh.provider.script = ({ run }) => ({ boot: run.startsWith("hangs") ? "never" : "ready" });
  const [ann, bob] = await Promise.all([mesh.caller(), mesh.caller("bob", "other")]);
  const hung = Array.from({ length: 40 }, (_, i) => errorOf(ann.acquire({ run: `hangs-${i}` }, 60_000)));
  await until("it has all that it may", () => mesh.provider.made.size === 14);
  await Promise.all(Array.from({ length: 10 }, () => bob.lease({ run: "boots" })));
  expect(mesh.provider.made.size).toBe(24);
  await Promise.all(Array.from({ length: 40 }, (_, i) => ann.release({ run: `hangs-${i}` })));
  expect(new Set((await Promise.all(hung)).map(({ code }) => code))).toEqual(new Set(["canceled"]));
});

test("a run's own quota is told as such, and takes nothing from the tenant's other runs", async () => {
  await using mesh = await testMesh({ maxSandboxesPerRun: 3 });
  const ann = await mesh.caller();
  await Promise.all(Array.from({ length: 3 }, () => ann.lease({ run: "full" })));
  const error = await errorOf(ann.acquire({ run: "full" }));
  expect(error).toMatchObject({ code: "quota_exceeded" });
  expect(error.message).toContain("run full");
  const [other] = await Promise.all([ann.lease({ run: "other" }), ann.lease({ run: "other" })]);
  await ann.release({ run: "full" });
  await ann.lease({ run: "full" });
  expect(other.run).toBe("other");
});

test("drained in a burst, the pool serves what it had taken, refuses what comes, and is empty when released", async () => {
  await using mesh = await testMesh({ maxBooting: 4 });
  const [ann, root] = await Promise.all([mesh.caller(), mesh.operator()]);
  const burst = Array.from({ length: 30 }, () => ann.lease());
  await until("it is under way", () => mesh.provider.created.length > 6);
  expect(await root.drain()).toMatchObject({ draining: true });
  expect(await errorOf(ann.acquire())).toMatchObject({ code: "draining", retryable: true });
  expect(new Set((await Promise.all(burst)).map(({ sandbox }) => sandbox)).size).toBe(30);
  await root.drain({ release_all: true });
  await until("it is empty", async () => (await root.drain()).remaining === 0);
  expect(mesh.provider.made.size).toBe(0);
});

test("deadlines shorter than the boot: each is typed and says where it stood, and nothing is left", async () => {
  await using mesh = await testMesh({ maxBooting: 4, reservedBooting: 0 });
  mesh.provider.script = () => ({ boot: "never" });
  const ann = await mesh.caller();
  const errors = await Promise.all(
    Array.from({ length: 40 }, () => errorOf(ann.acquire({ timeout_ms: 400 }, 20_000))),
  );
  for (const { code, reason } of errors) {
    expect(code).toBe("acquire_timeout");
    expect(["queued", "creating", "booting"]).toContain(String(reason));
  }
  await until(
    "nothing is left",
    async () => mesh.provider.made.size === 0 && (await ann.list()).sandboxes.length === 0,
  );
  expect(await ann.status()).toMatchObject({ queued: 0 });
  expect(new Set(mesh.records.states())).toEqual(new Set(["gone"]));
});
