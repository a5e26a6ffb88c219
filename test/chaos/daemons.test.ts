// A sandbox's own parts killed or frozen: its callers are told, typed and in time, and no other sandbox notices.
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import type { Mesh, Sandbox } from "../../sdk/typescript/mod.ts";
import { eventually, run } from "../e2e/program.ts";
import { Client } from "./client-process.ts";
import { ChaosMesh, counted, LEASE_MS, type SandboxPart, settled } from "./mesh.ts";

let mesh: ChaosMesh;
let client: Mesh;
/** Of another client; must come through everything. */
let bystander: Sandbox;
beforeAll(async () => {
  mesh = await ChaosMesh.start();
  bystander = await (await mesh.connect()).acquire({ image: "host" });
  await bystander.exec("echo kept > /tmp/f; sleep 300 > /dev/null 2>&1 &");
});
beforeEach(async () => {
  client = await mesh.connect();
});
afterEach(async () => {
  await client.close();
});
afterAll(async () => {
  await mesh[Symbol.asyncDispose]();
});

/** All but the bystander are gone. */
async function onlyBystander(): Promise<void> {
  const observer = await mesh.connect();
  const alone = async () => (await mesh.left()).sandboxes === 1 && (await observer.list()).length === 1;
  await eventually("only the bystander is left", alone, LEASE_MS + 10_000);
  expect((await bystander.exec("cat /tmp/f; pgrep -c sleep")).stdout.text).toBe("kept\n1\n");
}

describe.each<SandboxPart>(["daemon", "keeper"])("the %s of a sandbox killed", (part) => {
  test("while idle: the next command is a typed loss that says it did not start", async () => {
    const box = await client.acquire({ image: "host" });
    mesh.kill(mesh.sandboxPid(box.id, part));
    await new Promise<void>((lost) => box.onLost(() => lost()));
    const { error, afterMs } = await settled(box.exec("true"));
    expect({ code: error?.code, started: error?.started }).toEqual({ code: "sandbox_lost", started: "no" });
    expect(afterMs).toBeLessThan(5_000);
    await onlyBystander();
  });

  test("while a command runs: it ends as lost, never as an exit code", async () => {
    const box = await client.acquire({ image: "host" });
    const running = settled(box.exec(counted("/tmp/log", 60, 0)));
    await eventually("the command began", async () => (await box.exec("test -s /tmp/log")).ok);
    mesh.kill(mesh.sandboxPid(box.id, part));
    const { error, afterMs } = await running;
    expect(error?.code).toBe("sandbox_lost");
    expect(["yes", "unknown"]).toContain(String(error?.started));
    expect(afterMs).toBeLessThan(15_000);
    await onlyBystander();
  });

  test("while the command line, which has only the id, runs a command: it says why", async () => {
    const box = await client.acquire({ image: "host" });
    const words = ["deploy/sandmesh.ts", "exec", box.id, "--", counted("/tmp/log", 60, 0)];
    const ran = run([process.execPath, ...words], { env: { SANDMESH_HOME: mesh.home } });
    await eventually("the command began", async () => (await box.exec("test -s /tmp/log")).ok);
    mesh.kill(mesh.sandboxPid(box.id, part));
    const { code, stderr } = await ran;
    const why = `sandmesh: sandbox_lost: sandbox ${box.id} is not there any more (daemon_died)\n`;
    expect([code, stderr]).toEqual([125, why]);
    await onlyBystander();
  });

  test("in the middle of a burst: the others come, and nothing is left of it", async () => {
    const acquires = Array.from({ length: 12 }, () =>
      settled(client.acquire({ image: "host", timeout: "20s" })),
    );
    let victim: number | undefined;
    await eventually("one that is booting", async () => {
      for (const { sandbox } of await client.list()) {
        if (sandbox === bystander.id) continue;
        try {
          victim = mesh.sandboxPid(sandbox, part);
          return true;
        } catch {
          // Not that far yet.
        }
      }
      return false;
    });
    if (victim !== undefined) mesh.kill(victim);
    const all = await Promise.all(acquires);
    const got = all.filter(({ value }) => value !== undefined).length;
    expect(got).toBeGreaterThanOrEqual(11);
    const failed = all.flatMap(({ error }) => (error === undefined ? [] : [error.code]));
    // By how far it was: not launched, not ready, or granted already.
    for (const code of failed) expect(["provider_failed", "boot_failed", "sandbox_lost"]).toContain(code);
    await client.close();
    await onlyBystander();
  });
});

describe("from inside", () => {
  test("`kill -9 -1` ends all that was started in it, and not the daemon", async () => {
    await using box = await client.acquire({ image: "host" });
    await box.exec("sleep 300 > /dev/null 2>&1 &");
    const { outcome } = await box.exec("kill -9 -1; kill -9 1; echo survived");
    expect(["exited", "signaled"]).toContain(outcome.type);
    const running = async () => (await box.exec("ps -eo stat=,comm= | grep -c '^[^Z].*sleep'")).stdout.text;
    await eventually("the background process has ended", async () => (await running()) === "0\n");
  });
});

describe("a daemon frozen", () => {
  test("callers get typed errors within their deadlines; thawed, it works on", async () => {
    // Frozen for six seconds, and its own dead man's time is the lease and QUICK.deadManGraceMs.
    const patient = await mesh.connect({ lease: "20s" });
    await using box = await patient.acquire({ image: "host" });
    await box.exec("echo kept > /tmp/f");
    const pid = mesh.sandboxPid(box.id, "daemon");
    mesh.freeze(pid);
    try {
      const [exec, ping] = await Promise.all([
        settled(box.exec("echo once >> /tmp/once", { timeout: 300, grace: 0 })),
        settled(box.ping({ signal: AbortSignal.timeout(500) })),
      ]);
      expect(exec.error?.code).toBe("deadline_exceeded");
      expect(exec.error?.started).toBe("unknown");
      expect(exec.afterMs).toBeLessThan(10_000);
      expect(ping.error?.code).toBe("canceled");
    } finally {
      mesh.thaw(pid);
    }
    expect((await box.exec("cat /tmp/f; sort /tmp/once | uniq -d")).stdout.text).toBe("kept\n");
  });

  test("is removed with its frozen commands when its client is killed", async () => {
    await using killed = new Client("typescript", mesh.home, {
      lease_ms: LEASE_MS,
      command: "echo up; sleep 300",
    });
    await killed.step("running");
    const [id = ""] = (await killed.step("acquired")).sandboxes ?? [];
    process.kill(mesh.sandboxPid(id, "daemon"), "SIGSTOP");
    await killed.kill();
    await onlyBystander();
  });
});

describe("the relay and the launcher killed", () => {
  test("commands that run meanwhile end right and once; later ones work", async () => {
    await using box = await client.acquire({ image: "host" });
    const running = box.exec(counted("/tmp/log", 2, 7));
    await eventually("the command began", async () => (await box.exec("test -s /tmp/log")).ok);
    await mesh.killAndAwait("relay");
    expect((await running).outcome).toEqual({ type: "exited", code: 7 });
    expect((await box.exec("cat /tmp/log")).stdout.text).toBe("begun\nended\n");
    expect((await bystander.exec("cat /tmp/f")).stdout.text).toBe("kept\n");
  });

  test("in the middle of a burst: each acquire is answered, and nothing is left", async () => {
    const acquires = Array.from({ length: 12 }, () =>
      settled(client.acquire({ image: "host", timeout: "20s" })),
    );
    await eventually("some of them", async () => (await mesh.left()).sandboxes >= 3);
    mesh.kill(mesh.pid("relay"));
    mesh.kill(mesh.pid("launcher"));
    const all = await Promise.all(acquires);
    const boxes = all.flatMap(({ value }) => (value === undefined ? [] : [value]));
    const usable = await Promise.all(boxes.map((box) => box.exec("echo mine", { timeout: "10s" })));
    expect(usable.every((result) => result.ok)).toBe(true);
    const after = await client.acquire({ image: "host" });
    expect((await after.exec("true")).ok).toBe(true);
    await after.release();
    await client.close();
    await onlyBystander();
  });
});
