// Someone else with a sandbox's credentials: the sandbox ends, with the reason `tampered`.
import { expect, test } from "bun:test";
import { EnrolAnswer, encode, enrolSubject, parseAnswer } from "../../broker/contract/index.ts";
import { until } from "../../broker/server/testing.ts";
import { errorOf } from "../testing/errors.ts";
import { testMesh } from "../testing/mesh.ts";

test("a second enrolment ends the sandbox, and gets no credential", async () => {
  await using mesh = await testMesh();
  const ann = await mesh.caller();
  const grant = await ann.lease();
  const daemon = mesh.provider.made.get(grant.sandbox)?.daemon;
  if (daemon === undefined) throw new Error("no daemon");
  const thief = await mesh.server.connect({ jwt: daemon.bootstrap.jwt, seed: daemon.bootstrap.seed });
  expect(await errorOf(daemon.enrolOver(thief))).toMatchObject({ code: "boot_failed", reason: "tampered" });
  await until("it is removed", () => mesh.provider.made.size === 0);
  expect(mesh.pool.counters.ended).toEqual({ tampered: 1 });
  expect(await errorOf(ann.confirm(grant))).toMatchObject({ code: "sandbox_lost", reason: "tampered" });
});

test("an enrolment of another generation, or of no sandbox, is refused and harms none", async () => {
  await using mesh = await testMesh();
  mesh.provider.script = () => ({ boot: "never" });
  const ann = await mesh.caller();
  const granted = ann.acquire();
  const [made] = await until("made", () => mesh.provider.made.size === 1 && [...mesh.provider.made.values()]);
  const daemon = made?.daemon;
  if (daemon === undefined) throw new Error("no daemon");
  const { jwt, seed } = daemon.bootstrap;
  const link = await mesh.server.connect({ jwt, seed });
  expect((await errorOf(daemon.enrolOver(link, undefined, 9))).code).toBe("lease_lost");
  const stranger = await mesh.server.bootstrap("acme", "sb-nobody");
  const body = encode({
    version: 1,
    generation: 1,
    incarnation: "life-one",
    public_key: `U${"A".repeat(55)}`,
  });
  const asked = stranger.request("pool", enrolSubject("acme", "sb-nobody"), body, { timeoutMs: 2_000 });
  expect((await errorOf(asked.then((m) => parseAnswer(EnrolAnswer, m.data)))).code).toBe("not_found");
  await daemon.enrol();
  await daemon.serve();
  await ann.confirm(await granted);
});

test("a second live connection with the sandbox's key ends it", async () => {
  await using mesh = await testMesh();
  const ann = await mesh.caller();
  const { sandbox } = await ann.lease();
  const daemon = mesh.provider.made.get(sandbox)?.daemon;
  const thief = await daemon?.connect();
  await until("it is removed", () => mesh.provider.removed.includes(sandbox));
  expect(mesh.pool.counters.ended).toEqual({ tampered: 1 });
  await thief?.close();
});

test("a second connection that is quickly gone again ends it too", async () => {
  await using mesh = await testMesh({ secondConnectionGraceMs: 60_000 });
  const ann = await mesh.caller();
  const { sandbox } = await ann.lease();
  const thief = await mesh.provider.made.get(sandbox)?.daemon.connect();
  await thief?.close();
  await until("it is removed", () => mesh.provider.removed.includes(sandbox));
});

test("a ready of another life of the daemon ends the sandbox", async () => {
  await using mesh = await testMesh();
  const ann = await mesh.caller();
  const { sandbox } = await ann.lease();
  mesh.provider.made.get(sandbox)?.daemon.ready(2, "another-life");
  await until("it is removed", () => mesh.provider.removed.includes(sandbox));
});
