// The pool killed or frozen: what is leased works on as if nothing had happened, and what was under way ends typed.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { isAlive } from "../../broker/server/testing.ts";
import { eventually } from "../e2e/program.ts";
import { Client } from "./client-process.ts";
import { ChaosMesh, counted, LEASE_MS, settled } from "./mesh.ts";

let mesh: ChaosMesh;
beforeAll(async () => {
  mesh = await ChaosMesh.start();
});
afterAll(async () => {
  await mesh[Symbol.asyncDispose]();
});

describe("the pool killed", () => {
  test("leaves files, background processes and the lease as they are", async () => {
    const client = await mesh.connect();
    await using box = await client.acquire({ image: "host" });
    await box.exec("echo kept > /tmp/f; sleep 300 > /dev/null 2>&1 &");
    await mesh.killAndAwait("pool");
    expect((await box.exec("cat /tmp/f; pgrep -c sleep")).stdout.text).toBe("kept\n1\n");
    // Longer than the lease: the next pool has taken up the run and its renewals.
    await eventually("a state from the new pool", async () =>
      (await client.list()).some((view) => view.sandbox === box.id && view.state === "leased"),
    );
    await Bun.sleep(LEASE_MS + 3_000);
    expect(box.lost).toBeUndefined();
    expect((await box.exec("cat /tmp/f; pgrep -c sleep")).stdout.text).toBe("kept\n1\n");
  });

  test("disturbs no running command: its outcome is right, and it ran once", async () => {
    const client = await mesh.connect();
    await using box = await client.acquire({ image: "host" });
    const running = box.exec(counted("/tmp/log", 2, 7));
    await eventually("the command began", async () => (await box.exec("test -s /tmp/log")).ok);
    await mesh.killAndAwait("pool");
    expect((await running).outcome).toEqual({ type: "exited", code: 7 });
    expect((await box.exec("cat /tmp/log")).stdout.text).toBe("begun\nended\n");
  });

  test("in the middle of a burst, twice: no acquire is lost, and afterwards nothing is left", async () => {
    const client = await mesh.connect();
    const acquires = Array.from({ length: 24 }, () =>
      settled(client.acquire({ image: "host", timeout: "30s" })),
    );
    const observer = await mesh.connect();
    await eventually("some of them", async () => (await observer.list()).length >= 3);
    await mesh.killAndAwait("pool");
    await mesh.killAndAwait("pool");
    const all = await Promise.all(acquires);
    const boxes = all.flatMap(({ value }) => (value === undefined ? [] : [value]));
    expect(new Set(boxes.map((box) => box.id)).size).toBe(boxes.length);
    const outputs = await Promise.all(boxes.map((box) => box.exec("echo mine", { timeout: "20s" })));
    expect(outputs.every((result) => result.stdout.text === "mine\n")).toBe(true);
    // Also what was being launched, though the launcher dies with its pool.
    expect(all.flatMap(({ error }) => (error === undefined ? [] : [error.message]))).toEqual([]);
    await client.close();
    await mesh.nothingLeft();
  });

  test("with the client: nothing is left within the lease's time", async () => {
    await using client = new Client("typescript", mesh.home, { lease_ms: LEASE_MS, count: 3 });
    await client.step("acquired");
    await client.kill();
    await mesh.killAndAwait("pool");
    await mesh.nothingLeft();
  });
});

describe("the pool frozen", () => {
  test("a caller gets a typed error within its deadline, and commands go on", async () => {
    const client = await mesh.connect();
    await using box = await client.acquire({ image: "host" });
    const pid = mesh.pid("pool");
    mesh.freeze(pid);
    try {
      const acquire = settled(client.acquire({ image: "host", timeout: 1_000 }));
      expect((await box.exec("echo still here")).stdout.text).toBe("still here\n");
      const { error, afterMs } = await acquire;
      expect(error?.code).toBe("acquire_timeout");
      expect(afterMs).toBeLessThan(10_000);
    } finally {
      mesh.thaw(pid);
    }
    await eventually("what it had asked for is gone", async () => (await client.list()).length === 1);
  });

  test("for longer than a lease, takes nothing from those who renewed meanwhile", async () => {
    const client = await mesh.connect();
    await using box = await client.acquire({ image: "host" });
    await box.exec("echo kept > /tmp/f");
    const pid = mesh.pid("pool");
    mesh.freeze(pid);
    // Less than the daemon's own limit, which is the lease's time and QUICK.deadManGraceMs.
    await Bun.sleep(LEASE_MS + 500);
    mesh.thaw(pid);
    await Bun.sleep(LEASE_MS);
    expect(box.lost).toBeUndefined();
    expect((await box.exec("cat /tmp/f")).stdout.text).toBe("kept\n");
  });

  test("for good, is ended and started again, and the sandbox and acquires work on", async () => {
    const client = await mesh.connect({ lease: "120s" });
    await using box = await client.acquire({ image: "host" });
    const pid = mesh.pid("pool");
    mesh.freeze(pid);
    await eventually("it is ended", () => !isAlive(pid), 90_000);
    await using another = await client.acquire({ image: "host" });
    expect((await another.exec("echo new")).stdout.text).toBe("new\n");
    expect((await box.exec("echo old")).stdout.text).toBe("old\n");
    expect(box.lost).toBeUndefined();
  }, 150_000);
});
