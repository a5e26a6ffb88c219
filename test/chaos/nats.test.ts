// nats-server killed or frozen: connections come back by themselves, commands end right and exactly once.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { isAlive } from "../../broker/server/testing.ts";
import { eventually } from "../e2e/program.ts";
import { Client } from "./client-process.ts";
import { ChaosMesh, counted, LEASE_MS, LONG, settled } from "./mesh.ts";

let mesh: ChaosMesh;
beforeAll(async () => {
  mesh = await ChaosMesh.start();
});
afterAll(async () => {
  await mesh[Symbol.asyncDispose]();
});

describe("nats-server killed", () => {
  test("leaves files, background processes and the lease as they are", async () => {
    const client = await mesh.connect();
    await using box = await client.acquire({ image: "host" });
    await box.exec("echo kept > /tmp/f; sleep 300 > /dev/null 2>&1 &");
    await mesh.killAndAwait("nats");
    expect((await box.exec("cat /tmp/f; pgrep -c sleep")).stdout.text).toBe("kept\n1\n");
    await Bun.sleep(LEASE_MS + 3_000);
    expect(box.lost).toBeUndefined();
    expect((await box.exec("cat /tmp/f; pgrep -c sleep")).stdout.text).toBe("kept\n1\n");
  });

  test("commands that run meanwhile end with their right outcome and all output, and ran once", async () => {
    const client = await mesh.connect();
    const boxes = await client.acquireMany(3, { image: "host" });
    const codes = [0, 7, 255];
    const running = codes.map((code, i) => boxes[i]?.exec(`${counted("/tmp/log", 2, code)}`));
    const chatty = boxes[0]?.exec("for i in $(seq 40); do echo line $i; sleep 0.05; done");
    await eventually("they began", async () => (await boxes[2]?.exec("test -s /tmp/log"))?.ok === true);
    await mesh.killAndAwait("nats");
    const results = await Promise.all(running);
    expect(results.map((result) => result?.exitCode)).toEqual(codes);
    const lines = (await chatty)?.stdout.text.trimEnd().split("\n");
    expect(lines).toEqual(Array.from({ length: 40 }, (_, i) => `line ${i + 1}`));
    for (const box of boxes) {
      expect((await box.exec("cat /tmp/log")).stdout.text).toBe("begun\nended\n");
      await box.release();
    }
  });

  test("commands sent at the very moment run at most once, and their callers know what became of them", async () => {
    const client = await mesh.connect();
    await using box = await client.acquire({ image: "host" });
    const sent = Array.from({ length: 60 }, (_, i) =>
      Bun.sleep(i * 5).then(() => settled(box.exec(`echo ${i} >> /tmp/once`, { timeout: "20s" }))),
    );
    await Bun.sleep(150);
    await mesh.killAndAwait("nats");
    const results = await Promise.all(sent);
    const lines = (await box.exec("cat /tmp/once")).stdout.text.trimEnd().split("\n");
    expect(lines.length).toBe(new Set(lines).size);
    for (const [i, { value, error }] of results.entries()) {
      const ran = lines.includes(String(i));
      if (value !== undefined) expect([i, value.ok, ran]).toEqual([i, true, true]);
      else if (error?.started === "no") expect([i, ran]).toEqual([i, false]);
      else expect(["unknown", "yes"]).toContain(String(error?.started));
    }
  });

  test("in the middle of a burst: each acquire is answered, and afterwards nothing is left", async () => {
    const client = await mesh.connect();
    const acquires = Array.from({ length: 24 }, () =>
      settled(client.acquire({ image: "host", timeout: "40s" })),
    );
    await eventually("some of them", async () => (await mesh.left()).sandboxes >= 3);
    await mesh.killAndAwait("nats");
    const all = await Promise.all(acquires);
    const boxes = all.flatMap(({ value }) => (value === undefined ? [] : [value]));
    const outputs = await Promise.all(boxes.map((box) => box.exec("echo mine", { timeout: "20s" })));
    expect(outputs.every((result) => result.stdout.text === "mine\n")).toBe(true);
    expect({ got: boxes.length, of: all.length }).toEqual({ got: 24, of: 24 });
    await client.close();
    await mesh.nothingLeft();
  });

  test("with the client: nothing is left within the lease's time", async () => {
    await using client = new Client("typescript", mesh.home, {
      lease_ms: LEASE_MS,
      count: 3,
      command: "echo; sleep 300",
    });
    await client.steps("running", 3);
    await client.kill();
    await mesh.killAndAwait("nats");
    await mesh.nothingLeft();
  });
});

describe("nats-server gone", () => {
  test.each(LONG ? [1, 30] : [1])(
    "for %d s: commands run on, and what they did is kept and told afterwards",
    async (seconds) => {
      const client = await mesh.connect({ lease: "120s" });
      await using box = await client.acquire({ image: "host" });
      const ends = box.exec("sleep 0.5; head -c 300000 /dev/zero; echo ended >> /tmp/log; exit 7");
      const outlives = box.exec(`sleep ${seconds + 1}; echo outlived`);
      await eventually("they run", async () => (await box.exec("pgrep -c sleep")).stdout.text === "2\n");
      const [supervisor, server] = [mesh.pid("supervisor"), mesh.pid("nats")];
      // It would start the next one at once.
      mesh.freeze(supervisor);
      mesh.kill(server);
      await Bun.sleep(seconds * 1000);
      mesh.thaw(supervisor);
      const ended = await ends;
      expect([ended.exitCode, ended.stdout.totalBytes, ended.stdout.bytes.length]).toEqual([
        7, 300_000, 300_000,
      ]);
      expect((await outlives).stdout.text).toBe("outlived\n");
      expect((await box.exec("cat /tmp/log")).stdout.text).toBe("ended\n");
      expect(box.lost).toBeUndefined();
    },
    120_000,
  );
});

describe("nats-server frozen", () => {
  test("callers get typed errors within their deadlines; thawed, the same sandbox works on", async () => {
    const client = await mesh.connect({ lease: "20s" });
    await using box = await client.acquire({ image: "host" });
    await box.exec("echo kept > /tmp/f");
    const pid = mesh.pid("nats");
    mesh.freeze(pid);
    try {
      const [acquire, exec, ping] = await Promise.all([
        settled(client.acquire({ image: "host", timeout: 500 })),
        settled(box.exec("echo once >> /tmp/once", { timeout: 300, grace: 0 })),
        settled(box.ping({ signal: AbortSignal.timeout(1_000) })),
      ]);
      expect(acquire.error?.code).toBe("acquire_timeout");
      expect(exec.error).toMatchObject({ code: "deadline_exceeded", started: "unknown" });
      expect(ping.error?.code).toBe("canceled");
    } finally {
      mesh.thaw(pid);
    }
    expect((await box.exec("cat /tmp/f; sort /tmp/once | uniq -d")).stdout.text).toBe("kept\n");
    await eventually("what was asked for is gone", async () => (await client.list()).length === 1);
  });

  test("for longer than a lease, takes nothing from those who tried to renew meanwhile", async () => {
    const client = await mesh.connect();
    await using box = await client.acquire({ image: "host" });
    await box.exec("echo kept > /tmp/f");
    const pid = mesh.pid("nats");
    mesh.freeze(pid);
    await Bun.sleep(LEASE_MS + 500);
    mesh.thaw(pid);
    await Bun.sleep(LEASE_MS);
    expect(box.lost).toBeUndefined();
    expect((await box.exec("cat /tmp/f")).stdout.text).toBe("kept\n");
  });

  test("for good, is ended and started again, and the sandbox works on", async () => {
    const client = await mesh.connect({ lease: "120s" });
    await using box = await client.acquire({ image: "host" });
    const running = box.exec("sleep 1; echo went on");
    const pid = mesh.pid("nats");
    mesh.freeze(pid);
    await eventually("it is ended", () => !isAlive(pid), 80_000);
    expect((await running).stdout.text).toBe("went on\n");
    expect(mesh.pid("nats")).not.toBe(pid);
    expect(box.lost).toBeUndefined();
  }, 120_000);
});
