// Clients that are killed or frozen: what they held is gone within the lease's time, and nobody else notices.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { Client, type Language } from "./client-process.ts";
import { ChaosMesh, LEASE_MS } from "./mesh.ts";

let mesh: ChaosMesh;
beforeAll(async () => {
  mesh = await ChaosMesh.start();
});
afterAll(async () => {
  await mesh[Symbol.asyncDispose]();
});

const order = { lease_ms: LEASE_MS };

describe.each<Language>(["typescript", "python"])("a client in %s", (language) => {
  test("killed while idle leaves nothing", async () => {
    await using client = new Client(language, mesh.home, { ...order, count: 2 });
    await client.step("acquired");
    expect(await mesh.left()).toMatchObject({ sandboxes: 2 });
    await client.kill();
    await mesh.nothingLeft();
  });

  test("killed while commands run leaves none of them, nor what they started", async () => {
    const command = "setsid sleep 300 & nohup sleep 300 & echo up; sleep 300";
    await using client = new Client(language, mesh.home, { ...order, count: 2, command });
    await client.steps("running", 2);
    await client.kill();
    await mesh.nothingLeft();
  });

  test("killed in the middle of its burst leaves nothing of what was granted, booting or queued", async () => {
    await using client = new Client(language, mesh.home, { ...order, count: 24 });
    await client.step("asked");
    const observer = await mesh.connect();
    while ((await observer.list()).length < 4) await Bun.sleep(5);
    await client.kill();
    await mesh.nothingLeft();
  });

  test("frozen for longer than its lease loses its sandbox, and is told so when it goes on", async () => {
    await using client = new Client(language, mesh.home, order);
    await client.step("acquired");
    mesh.freeze(client.pid);
    await mesh.nothingLeft();
    mesh.thaw(client.pid);
    const result = await client.ask("echo still mine");
    expect(["sandbox_lost", "lease_lost", "unreachable"]).toContain(String(result.code));
    expect(result.started).toBe("no");
  });
});

test("a client that is killed takes nothing from another one", async () => {
  const other = await mesh.connect();
  await using box = await other.acquire({ image: "host" });
  await box.exec("echo kept > /tmp/f; sleep 300 > /dev/null 2>&1 &");
  await using client = new Client("typescript", mesh.home, { ...order, count: 3 });
  await client.step("acquired");
  await client.kill();
  while ((await other.list()).length > 1) await Bun.sleep(50);
  const result = await box.exec("cat /tmp/f; pgrep -c sleep");
  expect(result.stdout.text).toBe("kept\n1\n");
});
