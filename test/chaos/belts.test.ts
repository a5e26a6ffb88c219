// The three belts of cleanup, each with the other two off as far as settings allow: a client is killed, and what it
// held ends by the pool's lease alone, by the daemon's dead man's switch alone, by the provider's backstop alone.
import { expect, test } from "bun:test";
import { eventually } from "../e2e/program.ts";
import { Client } from "./client-process.ts";
import { ChaosMesh, LEASE_MS, SLACK_MS } from "./mesh.ts";

/** As good as never. */
const DAY_MS = 24 * 3600_000;
const command = "setsid sleep 300 & echo up; sleep 300";

/** Kills a client that holds two sandboxes with commands in them, after `before`. */
async function orphaned(mesh: ChaosMesh, before: (sandboxes: string[]) => void): Promise<void> {
  await using client = new Client("typescript", mesh.home, { lease_ms: LEASE_MS, count: 2, command });
  await client.steps("running", 2);
  before((await client.step("acquired")).sandboxes ?? []);
}

const noProcesses = (mesh: ChaosMesh, withinMs: number) =>
  eventually("no process of a sandbox", async () => (await mesh.left()).processes === 0, withinMs);

test("the pool's lease alone: daemons that would wait for a day, and frozen ones", async () => {
  await using mesh = await ChaosMesh.start({ deadManGraceMs: DAY_MS });
  await orphaned(mesh, (sandboxes) => {
    for (const sandbox of sandboxes) process.kill(mesh.sandboxPid(sandbox, "daemon"), "SIGSTOP");
  });
  await mesh.nothingLeft();
});

test("the dead man's switch alone: a pool that stands still", async () => {
  await using mesh = await ChaosMesh.start({ deadManGraceMs: 2_000 });
  await orphaned(mesh, () => mesh.freeze(mesh.pid("pool")));
  // The processes end by themselves; the folders are for the pool to remove, once it is back.
  await noProcesses(mesh, LEASE_MS + SLACK_MS);
  expect((await mesh.left()).sandboxes).toBe(2);
  mesh.thaw(mesh.pid("pool"));
  await mesh.nothingLeft();
});

test("the dead man's switch alone: no server to hear anyone from", async () => {
  await using mesh = await ChaosMesh.start({ deadManGraceMs: 2_000 });
  await orphaned(mesh, () => {
    mesh.freeze(mesh.pid("nats"));
  });
  await noProcesses(mesh, LEASE_MS + SLACK_MS);
  mesh.thaw(mesh.pid("nats"));
  await mesh.nothingLeft();
});

test("the provider's backstop alone: pool and daemons stand still", async () => {
  const maxLifeMs = 8_000;
  await using mesh = await ChaosMesh.start({ deadManGraceMs: DAY_MS, maxLifeMs });
  await orphaned(mesh, (sandboxes) => {
    mesh.freeze(mesh.pid("pool"));
    for (const sandbox of sandboxes) process.kill(mesh.sandboxPid(sandbox, "daemon"), "SIGSTOP");
  });
  await noProcesses(mesh, maxLifeMs + SLACK_MS);
  mesh.thaw(mesh.pid("pool"));
  await mesh.nothingLeft();
});

test("the longest life ends a sandbox whose client renews it for ever, typed", async () => {
  await using mesh = await ChaosMesh.start({ maxLifeMs: 4_000 });
  const client = await mesh.connect();
  const box = await client.acquire({ image: "host" });
  const lost = new Promise<Error>((tell) => box.onLost(tell));
  expect(await lost).toMatchObject({ code: "sandbox_lost", reason: "expired" });
  await mesh.nothingLeft();
});
