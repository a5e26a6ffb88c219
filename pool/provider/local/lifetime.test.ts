// Whoever dies, and in whatever order: what lives on, what ends, and that nothing is left.
import { afterEach, beforeEach, describe, expect, setDefaultTimeout, test } from "bun:test";
import { mkdir, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { until } from "../contract.test-suite.ts";
import type { ProviderEvent } from "../provider.ts";
import { Layout } from "./layout.ts";
import { leftovers } from "./leftovers.ts";
import { findMarked, isAlive, kill, startOf } from "./processes.ts";
import { Bench, signal } from "./testing.ts";

setDefaultTimeout(60_000);

describe.if(process.getuid?.() === 0)("lifetime", () => {
  let bench: Bench;
  beforeEach(async () => {
    bench = await Bench.make();
  });
  afterEach(async () => {
    await bench[Symbol.asyncDispose]();
  });

  const creates = (sandbox: string): Promise<boolean> =>
    bench.create(sandbox).then(
      () => true,
      () => bench.remove(sandbox).then(() => false),
    );

  /** A pool process that makes sandboxes at once, killed with -9 when the first is there. */
  async function poolThatDies(maxLifeMs: number, ...sandboxes: string[]): Promise<void> {
    const script = join(import.meta.dir, "testing.ts");
    const pool = Bun.spawn([process.execPath, script, bench.folder, String(maxLifeMs), ...sandboxes], {
      stdout: "pipe",
      stdin: "ignore",
    });
    const reader = pool.stdout.getReader();
    expect(new TextDecoder().decode((await reader.read()).value)).toBe("created\n");
    pool.kill("SIGKILL");
    await pool.exited;
  }

  test("a sandbox lives on when its pool is killed, and the next pool adopts and removes it", async () => {
    await poolThatDies(600_000, "sb-orphan");
    const first = await bench.first("sb-orphan");
    // The launcher ends with its pool; the sandbox does not.
    await until("only the relay", async () => (await leftovers(bench.stateDir)).services <= 1);
    expect(isAlive(first)).toBe(true);
    const provider = await bench.restart();
    const events: ProviderEvent[] = [];
    provider.watch((event) => events.push(event));
    expect(await provider.list(signal())).toMatchObject([
      { sandbox: "sb-orphan", tenant: "acme", phase: "running" },
    ]);
    kill(first);
    await until("lost", () => events.length > 0);
    expect(events).toMatchObject([{ type: "lost", sandbox: "sb-orphan", reason: "daemon_died" }]);
    await provider.remove("sb-orphan", undefined, signal());
    expect(await bench.left()).toEqual([]);
  });

  test("a sandbox whose pool was killed ends at its longest life, with no pool alive", async () => {
    await poolThatDies(1500, "sb-orphan");
    const first = await bench.first("sb-orphan");
    expect(isAlive(first)).toBe(true);
    await until("its end", () => !isAlive(first));
    await until("its supervisor's end", async () => (await leftovers(bench.stateDir)).processes === 0);
  });

  test("a pool that is killed in the midst of a burst leaves nothing that the next one cannot remove", async () => {
    await poolThatDies(600_000, ...Array.from({ length: 24 }, (_, i) => `sb-${i}`));
    const provider = await bench.restart();
    const listed = await provider.list(signal());
    expect(listed.length).toBeGreaterThan(0);
    await Promise.all(listed.map(({ sandbox }) => bench.remove(sandbox)));
    // Only what was never begun can be missing from the list: nothing comes after it.
    await until("nothing", async () => (await bench.left()).length === 0);
    expect(await provider.list(signal())).toEqual([]);
  });

  test("all that a sandbox started ends with its first process", async () => {
    const script = "setsid sleep 900 & (sleep 901 &) ; nohup sleep 902 >/dev/null & sleep 0.1";
    await bench.probe("sb-a", script);
    expect((await leftovers(bench.stateDir)).processes).toBeGreaterThanOrEqual(5);
    kill(await bench.first("sb-a"));
    await until("no processes", async () => (await leftovers(bench.stateDir)).processes === 0);
    expect(await bench.left()).toContain("1 sandboxes");
    await bench.remove("sb-a");
    expect(await bench.left()).toEqual([]);
  });

  test("a sandbox ends with its supervisor", async () => {
    await bench.create("sb-a");
    const first = await bench.first("sb-a");
    kill(await bench.supervisor("sb-a"));
    await until("its end", () => !isAlive(first));
    expect(await bench.provider.list(signal())).toMatchObject([{ sandbox: "sb-a", phase: "failed" }]);
  });

  test("that a supervisor was killed is told at once, not when the server misses the daemon's heartbeats", async () => {
    const events: ProviderEvent[] = [];
    bench.provider.watch((event) => events.push(event));
    await bench.create("sb-a");
    kill(await bench.supervisor("sb-a"));
    await until("lost", () => events.some(({ type }) => type === "lost"));
    expect(events.at(-1)).toMatchObject({ sandbox: "sb-a", reason: "daemon_died" });
    expect(events.at(-1)).toHaveProperty(
      "message",
      expect.stringContaining("its supervisor ended by signal 9"),
    );
    await bench.remove("sb-a");
    expect(await bench.left()).toEqual([]);
  });

  test("that a supervisor was killed is told by the launcher after the one that forked it, too", async () => {
    const events: ProviderEvent[] = [];
    bench.provider.watch((event) => events.push(event));
    await Promise.all(["sb-a", "sb-b", "sb-c"].map((sandbox) => bench.create(sandbox)));
    const { ppid } = await parentOf((await bench.supervisor("sb-a")).pid);
    process.kill(ppid, "SIGKILL");
    // One while there is no launcher, one when the next is there, which no create has asked for.
    kill(await bench.supervisor("sb-b"));
    await until("sb-b's loss", () => events.some((e) => e.type === "lost" && e.sandbox === "sb-b"));
    kill(await bench.supervisor("sb-c"));
    await until("sb-c's loss", () => events.some((e) => e.type === "lost" && e.sandbox === "sb-c"));
    expect(events.filter(({ type }) => type === "lost").map(({ sandbox }) => sandbox)).toEqual([
      "sb-b",
      "sb-c",
    ]);
    expect(isAlive(await bench.first("sb-a"))).toBe(true);
  });

  test("the loss of a sandbox of a killed pool, by its supervisor, is told to the next pool", async () => {
    await poolThatDies(600_000, "sb-orphan");
    const provider = await bench.restart();
    const events: ProviderEvent[] = [];
    provider.watch((event) => events.push(event));
    await provider.list(signal());
    kill(await bench.supervisor("sb-orphan"));
    await until("lost", () => events.length > 0);
    expect(events).toMatchObject([{ type: "lost", sandbox: "sb-orphan", reason: "daemon_died" }]);
  });

  test("a sandbox that ends with no pool alive takes its folder, its cgroups and the relay along", async () => {
    await poolThatDies(600_000, "sb-a", "sb-b");
    const sandboxes = (await leftovers(bench.stateDir)).sandboxes;
    expect(sandboxes).toBeGreaterThan(0);
    await until("both run", async () => (await bench.first("sb-b").catch(() => undefined)) !== undefined);
    for (const sandbox of ["sb-a", "sb-b"]) kill(await bench.first(sandbox));
    await until("nothing", async () => (await bench.left()).length === 0);
    await until("no relay", async () => (await leftovers(bench.stateDir)).services === 0);
    expect(await ownGroups(bench.stateDir)).toEqual([]);
  });

  test("a sandbox that ends while the launcher of a killed pool is still there takes its folder along, too", async () => {
    await poolThatDies(600_000, "sb-a", "sb-b");
    await until("both run", async () => (await bench.first("sb-b").catch(() => undefined)) !== undefined);
    await until("its own launcher's end", async () => (await leftovers(bench.stateDir)).services <= 1);
    // As one that has yet to notice holds it.
    const script = 'exec 9<>"$0"; flock 9; echo held; exec sleep 1000';
    const launcher = Bun.spawn(["bash", "-c", script, join(bench.stateDir, "launcher.lock")], {
      stdout: "pipe",
    });
    try {
      expect(new TextDecoder().decode((await launcher.stdout.getReader().read()).value)).toBe("held\n");
      for (const sandbox of ["sb-a", "sb-b"]) kill(await bench.first(sandbox));
      const told = async () => (await readdir(join(bench.stateDir, "exits"))).length === 2;
      await until("both have told their end", told);
      // Each has looked at once, while it was held; so did those that then took a pool to be there.
      await Bun.sleep(200);
    } finally {
      launcher.kill();
      await launcher.exited;
    }
    await until("nothing", async () => (await bench.left()).length === 0);
  });

  test("a launcher that dies costs no sandbox, and the next create starts another", async () => {
    await bench.create("sb-a");
    const { ppid } = await parentOf((await bench.supervisor("sb-a")).pid);
    process.kill(ppid, "SIGKILL");
    await until("the launcher's end", async () => (await leftovers(bench.stateDir)).services === 1);
    await until("a new one", () => creates("sb-b"));
    const phases = (await bench.provider.list(signal())).map(({ phase }) => phase);
    expect(phases).toEqual(["running", "running"]);
  });

  test("a launcher that stands still is told as such, and another one launches; it keeps no pool from its end", async () => {
    await bench.create("sb-a");
    const stop = async (sandbox: string) => {
      const { ppid } = await parentOf((await bench.supervisor(sandbox)).pid);
      process.kill(ppid, "SIGSTOP");
    };
    await stop("sb-a");
    await expect(bench.create("sb-b")).rejects.toMatchObject({ reason: "launch_unanswered" });
    await until("a new one", () => creates("sb-b"));
    await stop("sb-b");
    await bench.provider.end(signal());
    expect(await leftovers(bench.stateDir)).toMatchObject({ sandboxes: 0, processes: 0, services: 0 });
  });

  test("what a pool left half made is listed, and can be removed", async () => {
    const folder = join(bench.stateDir, "sandboxes/sb-half");
    await mkdir(folder, { recursive: true });
    await writeFile(
      join(folder, "meta.json"),
      JSON.stringify({ sandbox: "sb-half", tenant: "acme", run: "r", uid: "u1", image: "host" }),
    );
    await mkdir(join(bench.stateDir, "sandboxes/sb-gone~/upper"), { recursive: true });
    const listed = await bench.provider.list(signal());
    expect(listed.sort((a, b) => a.sandbox.localeCompare(b.sandbox))).toMatchObject([
      { sandbox: "sb-gone", phase: "failed", reason: "removing" },
      { sandbox: "sb-half", tenant: "acme", uid: "u1", phase: "unfinished" },
    ]);
    await Promise.all(listed.map(({ sandbox }) => bench.remove(sandbox)));
    expect(await bench.left()).toEqual([]);
  });

  test("what a pool killed in the midst of a burst had begun, the next one makes or takes up under the same names", async () => {
    const names = Array.from({ length: 24 }, (_, i) => `sb-${i}`);
    await poolThatDies(600_000, ...names);
    const provider = await bench.restart();
    const before = await provider.list(signal());
    await Promise.all(names.map((name) => bench.create(name)));
    const listed = await provider.list(signal());
    expect(listed.length).toBe(24);
    // What was on its way when it was taken up runs by itself soon.
    await until("all run", async () =>
      (await provider.list(signal())).every(({ phase }) => phase === "running"),
    );
    // What ran already was taken up as it was.
    for (const { sandbox, uid, phase } of before)
      if (phase === "running") expect(listed.find((each) => each.sandbox === sandbox)?.uid).toBe(uid);
    await Promise.all(names.map((name) => bench.remove(name)));
    expect(await bench.left()).toEqual([]);
  });

  test("a launcher that outlived its pool makes nothing beside the next one", async () => {
    await bench.create("sb-a");
    const { ppid } = await parentOf((await bench.supervisor("sb-a")).pid);
    // Stands still, as on a busy machine, while its pool dies and another starts.
    process.kill(ppid, "SIGSTOP");
    const old = bench.provider;
    const stuck = bench.create("sb-b");
    stuck.catch(() => undefined);
    const file = join(bench.stateDir, "sandboxes/sb-b/meta.json");
    await until("sb-b is begun", () => Bun.file(file).exists());
    const provider = await bench.restart();
    await provider.list(signal());
    expect(isAlive({ pid: ppid, start: startOf(ppid) ?? -1 })).toBe(false);
    await expect(stuck).rejects.toMatchObject({ reason: "launcher_died" });
    expect(isAlive(await bench.first("sb-a"))).toBe(true);
    await old.close();
  });

  test("what is left of a sandbox whose records are lost is told without other meshes' launchers and relays", async () => {
    await bench.create("sb-a");
    expect((await leftovers(bench.stateDir)).services).toBeGreaterThan(0);
    expect((await findMarked("/no mark/")).pids).toEqual([]);
  });

  test("layers of an earlier form are removed at a start, once no sandbox is made of them", async () => {
    const layers = join(bench.stateDir, "layers");
    const names = ["0123456789abcdef".repeat(4), `own-${"0".repeat(64)}`, `on-${"0".repeat(64)}`];
    await bench.create("sb-a");
    for (const name of names) await mkdir(join(layers, name, "etc"), { recursive: true });
    await bench.provider.close();
    await (await bench.restart()).list(signal());
    expect((await readdir(layers)).sort()).toEqual(names.toSorted());
    await bench.remove("sb-a");
    await bench.provider.close();
    await (await bench.restart()).list(signal());
    expect((await readdir(layers)).sort()).toEqual(names.slice(1).toSorted());
  });

  test("files of any name and mode, and folders nobody may enter, are removed", async () => {
    const script = `mkdir -p /tmp/a/b && touch "/tmp/a/$(printf '\\377\\376 \\n x')" /tmp/a/-rf && chmod 000 /tmp/a/b /tmp/a
      mkdir -p /tmp/deep; cd /tmp/deep; for i in $(seq 200); do mkdir long-folder-name-$i && cd long-folder-name-$i; done
      ln -s / /tmp/root; mkfifo /tmp/pipe; touch /usr/bin/ls; rm -rf /usr/share/doc; chattr +i /etc/hostname; true`;
    await bench.probe("sb-a", script);
    await bench.remove("sb-a");
    expect(await bench.left()).toEqual([]);
    expect(await Bun.file("/usr/bin/ls").exists()).toBe(true);
  });

  test("a create that fails in the kernel leaves nothing, and says what failed", async () => {
    const lower = join(bench.folder, "rootfs");
    await mkdir(join(lower, "etc"), { recursive: true });
    const failure = await bench.create("sb-a", { image: lower }).then(
      () => "",
      (error: Error) => error.message,
    );
    expect(failure).toContain("/bin/sh");
    expect(failure).toContain("No such file");
    expect(await bench.left()).toEqual([]);
  });

  test("a sandbox's output on the machine's disk is bounded", async () => {
    await bench.probe("sb-a", "head -c 5000000 /dev/zero | tr '\\0' 'x'; echo; echo last words");
    const log = await bench.log("sb-a");
    expect(log.length).toBeLessThanOrEqual(256 * 1024);
    expect(log).toContain("last words");
  });
});

/** The mesh's own groups, in whatever hierarchy. */
async function ownGroups(stateDir: string): Promise<string[]> {
  const { mark } = new Layout(stateDir);
  const found = await Bun.$`find /sys/fs/cgroup -type d -name ${mark}`.nothrow().quiet().text();
  return found.split("\n").filter((line) => line !== "");
}

async function parentOf(pid: number): Promise<{ ppid: number }> {
  const stat = await Bun.file(`/proc/${pid}/stat`).text();
  return { ppid: Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]) };
}
