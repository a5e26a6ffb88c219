// The process behind `sandmesh up` killed or frozen.
import { expect, test } from "bun:test";
import { isAlive } from "../../broker/server/testing.ts";
import { homePaths } from "../../deploy/local/home.ts";
import { up } from "../../deploy/local/up.ts";
import { leftovers } from "../../pool/provider/local/index.ts";
import { connect } from "../../sdk/typescript/mod.ts";
import { eventually } from "../e2e/program.ts";
import { Client } from "./client-process.ts";
import { ChaosMesh, LEASE_MS, SLACK_MS, settled } from "./mesh.ts";

test("killed while commands run and a burst is under way: all of it ends, callers hear so in time", async () => {
  await using mesh = await ChaosMesh.start();
  const pids = [mesh.pid("supervisor"), mesh.pid("pool"), mesh.pid("nats")];
  await using holder = new Client("python", mesh.home, {
    lease_ms: LEASE_MS,
    command: "setsid sleep 300 & echo up; sleep 300",
  });
  await holder.step("running");
  const client = await mesh.connect();
  const box = await client.acquire({ image: "host" });
  const burst = Array.from({ length: 6 }, () => settled(client.acquire({ image: "host", timeout: "3s" })));
  mesh.kill(mesh.pid("supervisor"));
  const exec = settled(box.exec("true", { timeout: 1_000, grace: 0 }));
  // The kernel ends pool and nats-server with it.
  await eventually("no part of the mesh", () => !pids.some(isAlive), SLACK_MS);
  await eventually(
    "no process of a sandbox",
    async () => (await mesh.left()).processes === 0,
    LEASE_MS + SLACK_MS,
  );
  // Nobody says `down`: the sandboxes' own supervisors, and the relay, take all of it along.
  await eventually(
    "no folder, cgroup or process of the mesh",
    async () => Object.values(await leftovers(homePaths(mesh.home).local)).every((count) => count === 0),
    LEASE_MS + SLACK_MS,
  );
  const { error, value } = await exec;
  // It may have been quicker than the kill.
  if (value === undefined) expect(["unknown", "no"]).toContain(String(error?.started));
  for (const { error } of await Promise.all(burst)) {
    if (error !== undefined) expect(["acquire_timeout", "pool_unavailable"]).toContain(error.code);
  }
  expect(await mesh.end()).toEqual({ sandboxes: 0, processes: 0, mounts: 0, leases: 0 });
});

test("killed, then `up` again in the same home: what was left is removed, and the new mesh works", async () => {
  await using mesh = await ChaosMesh.start();
  const client = await mesh.connect();
  await client.acquireMany(3, { image: "host" });
  const supervisor = mesh.pid("supervisor");
  mesh.kill(supervisor);
  await eventually("it is gone", () => !isAlive(supervisor));
  const { url, credentials } = await up(mesh.home, { providers: ["local"] });
  expect(await mesh.left()).toMatchObject({ sandboxes: 0, processes: 0, mounts: 0 });
  await using other = await connect({ url, credentials, handleSignals: false });
  expect(await other.list()).toEqual([]);
  await using box = await other.acquire({ image: "host" });
  expect((await box.exec("echo on")).stdout.text).toBe("on\n");
});

test("frozen: sandboxes, acquires and commands go on without it", async () => {
  await using mesh = await ChaosMesh.start();
  mesh.freeze(mesh.pid("supervisor"));
  const client = await mesh.connect();
  await using box = await client.acquire({ image: "host" });
  expect((await box.exec("echo on")).stdout.text).toBe("on\n");
  mesh.thaw(mesh.pid("supervisor"));
});
