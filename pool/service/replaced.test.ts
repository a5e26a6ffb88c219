// A pool that another one has replaced, and that has not heard of it: all that the next one makes is unknown to it, and
// must not be ended for that.
import { expect, test } from "bun:test";
import {
  controlWildcard,
  encode,
  ListAnswer,
  newUuidV7,
  ReleaseAnswer,
  RenewAnswer,
  sandboxEventSubject,
} from "../../broker/contract/index.ts";
import { until } from "../../broker/server/testing.ts";
import { type TestMesh, testMesh } from "../testing/mesh.ts";

/** The next pool has taken the records over, and made a sandbox. */
async function replaced(mesh: TestMesh, like: string): Promise<void> {
  mesh.records.open();
  mesh.provider.plant("sb-next", like);
}

test("it removes no sandbox of the next one as an orphan, and ends", async () => {
  await using mesh = await testMesh({ reconcileMs: 50 });
  const ann = await mesh.caller();
  const { sandbox } = await ann.lease();
  mesh.provider.plant("sb-orphan", sandbox);
  await until("its own orphan is removed", () => mesh.provider.removed.includes("sb-orphan"));
  await replaced(mesh, sandbox);
  await mesh.pool.failed;
  await until("it compared once more", () => mesh.provider.listed > 3);
  expect([...mesh.provider.made.keys()].sort()).toEqual(["sb-next", sandbox].sort());
});

test("it ends no daemon of the next one that says it is ready", async () => {
  await using mesh = await testMesh();
  const ann = await mesh.caller();
  await ann.lease();
  const link = await mesh.server.sandbox("acme", "sb-next");
  const words: string[] = [];
  link.subscribe(controlWildcard("acme", "sb-next"), ({ subject }) => words.push(subject));
  await link.flush();
  const ready = () =>
    link.publish(
      sandboxEventSubject("acme", "sb-next", "ready"),
      encode({ version: 1, generation: 1, incarnation: newUuidV7(), boot_ms: 1 }),
    );
  ready();
  await until("one that is of no record is ended", () => words.length === 1);
  mesh.records.open();
  ready();
  await mesh.pool.failed;
  await link.flush();
  await ann.link.flush();
  expect(words).toHaveLength(1);
});

test("it does not say that a run or sandbox is not there, or released", async () => {
  await using mesh = await testMesh();
  const ann = await mesh.caller();
  await expect(ann.renew("run-of-the-next")).rejects.toMatchObject({ code: "not_found" });
  mesh.records.open();
  const asked = ann.ask("renew", { version: 1, run: "run-of-the-next" }, RenewAnswer, 300);
  await expect(asked).rejects.toMatchObject({ code: "deadline_exceeded" });
  const listed = ann.ask("list", { version: 1, run: "run-of-the-next" }, ListAnswer, 300);
  await expect(listed).rejects.toMatchObject({ code: "deadline_exceeded" });
  const released = ann.ask("release", { version: 1, sandbox: "sb-next" }, ReleaseAnswer, 300);
  await expect(released).rejects.toMatchObject({ code: "deadline_exceeded" });
});
