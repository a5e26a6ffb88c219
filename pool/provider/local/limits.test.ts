// Limits are held by the kernel, and what happens at them is told as what it was.
import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { stat } from "node:fs/promises";
import { constants } from "node:os";
import { join } from "node:path";
import { until } from "../contract.test-suite.ts";
import type { ProviderEvent } from "../provider.ts";
import { Cgroups } from "./cgroups.ts";
import { diskNeeds } from "./disk.ts";
import { countsByNamespace, defaultsOf, Limits } from "./limits.ts";
import { Bench } from "./testing.ts";

const { enforced } = new Cgroups("sandmesh-test");
const MIB = 1024 * 1024;
/** Of all loop devices. */
const backingFiles = (): string =>
  readdirSync("/sys/block")
    .map((name) => {
      try {
        return readFileSync(`/sys/block/${name}/loop/backing_file`, "utf8");
      } catch {
        return "";
      }
    })
    .join("");

const GIB = 1024 * MIB;

test("without a wish a sandbox has a limit of memory and of processes, and never the whole machine", () => {
  expect(defaultsOf(64 * GIB)).toEqual({ memoryBytes: 4 * GIB, pids: 4096 });
  expect(defaultsOf(3 * GIB).memoryBytes).toBe(1.5 * GIB);
  expect(defaultsOf(1000 * MIB + 77).memoryBytes).toBe(500 * MIB);
  const limits = new Limits(new Set(["cpu", "memory", "pids"]), true, { memoryBytes: GIB });
  expect(limits.of({ image: "host" })).toEqual({ image: "host", memory_bytes: GIB, pids: 4096 });
  expect(limits.of({ image: "host", memory_bytes: 5 * GIB, pids: 20 })).toMatchObject({
    memory_bytes: 5 * GIB,
    pids: 20,
  });
  expect(limits.warnings({ image: "host", cpu: 1 })).toEqual([]);
});

test("a limit that is not held is said, whether it was asked for or is the default's", () => {
  const none = new Limits(new Set(), true);
  const words = none.warnings({ image: "host", cpu: 1, pids: 20 });
  expect(words).toHaveLength(3);
  expect(words.join()).toMatch(
    /cpu: the limit that was asked.*memory: the limit that sandboxes have.*processes: /,
  );
  expect(none.warnings({ image: "host" }).join()).not.toContain("cpu");
  expect(new Limits(new Set(), false).warnings({ image: "host", disk_bytes: GIB }).join()).toContain(
    "disk: the limit that was asked for is not held, since it needs root",
  );
  expect(new Limits(new Set(), false, { diskBytes: GIB }).warnings({ image: "host" }).join()).toContain(
    "disk: the limit that sandboxes have by default",
  );
  expect([countsByNamespace("5.13.9"), countsByNamespace("5.14.0-9"), countsByNamespace("6.1.0")]).toEqual([
    false,
    true,
    true,
  ]);
});

test("a limit above what the machine has is no promise of more, and is said to be none", () => {
  const limits = new Limits(new Set(["cpu", "memory", "pids"]), true, {}, { cores: 2, memoryBytes: GIB });
  expect(limits.warnings({ image: "host", cpu: 2, memory_bytes: GIB })).toEqual([]);
  expect(limits.warnings({ image: "host", cpu: 1000, memory_bytes: 2 * GIB })).toEqual([
    "cpu: 1000 were asked for, and all that this machine has are 2",
    `memory: ${2 * GIB} bytes were asked for, and all that this machine has are ${GIB}`,
  ]);
});

describe.if(process.getuid?.() === 0)("limits", () => {
  let bench: Bench;
  beforeEach(async () => {
    bench = await Bench.make();
  });
  afterEach(async () => {
    await bench[Symbol.asyncDispose]();
  });

  test.if(enforced.has("memory"))(
    "a first process that needs more memory than allowed is lost to `oom`",
    async () => {
      const events: ProviderEvent[] = [];
      bench.provider.watch((event) => events.push(event));
      const hungry = `python3 -c 'b = bytearray(200 * ${MIB})'`;
      await using other = await Bench.make({ daemonArgv: ["/bin/sh", "-c", `sleep 0.2; exec ${hungry}`] });
      other.provider.watch((event) => events.push(event));
      await other.create("sb-hungry", { memory_bytes: 32 * MIB });
      await until("lost", () => events.some((event) => event.type === "lost"));
      expect(events.filter((e) => e.type === "lost")).toMatchObject([
        { sandbox: "sb-hungry", reason: "oom" },
      ]);
      expect(await other.provider.list(AbortSignal.timeout(1000))).toMatchObject([
        { phase: "failed", reason: "oom" },
      ]);
    },
  );

  test.if(enforced.has("memory"))(
    "a sandbox that is killed later than a command in it was, for memory, is not lost to `oom`",
    async () => {
      const events: ProviderEvent[] = [];
      // Without a word, which would wake the supervisor.
      const quiet = `exec 2> /dev/null; python3 -c 'b = bytearray(200 * ${MIB})'; [ $? = 137 ] && exec sleep 1000`;
      await using other = await Bench.make({ daemonArgv: ["/bin/sh", "-c", quiet] });
      other.provider.watch((event) => events.push(event));
      await other.create("sb-a", { memory_bytes: 32 * MIB });
      const { pid } = await other.first("sb-a");
      await until("killed", () => readFileSync(`/proc/${pid}/cmdline`, "utf8").startsWith("sleep"));
      // Within a few seconds it could not be told which of the two the kernel has killed (launch/oom.py).
      await Bun.sleep(8_000);
      process.kill(pid, "SIGKILL");
      await until("lost", () => events.some((event) => event.type === "lost"));
      expect(events.filter((e) => e.type === "lost")).toMatchObject([
        { sandbox: "sb-a", reason: "daemon_died" },
      ]);
      expect(await other.provider.list(AbortSignal.timeout(1000))).toMatchObject([
        { phase: "failed", reason: "daemon_died" },
      ]);
    },
    60_000,
  );

  test.if(enforced.has("memory"))("a command over the memory limit dies, and the sandbox lives", async () => {
    const script = `cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null
      python3 -c 'b = bytearray(200 * ${MIB})'; echo status $?`;
    const out = await bench.probe("sb-a", script, { memory_bytes: 64 * MIB });
    expect(out).toContain(`${64 * MIB}`);
    expect(out).toContain("status 137");
  });

  test.if(enforced.has("memory") && enforced.has("pids"))(
    "a sandbox that asks for nothing has limits",
    async () => {
      const script = `cd /sys/fs/cgroup; cat memory.max memory/memory.limit_in_bytes pids.max pids/pids.max 2>/dev/null; true`;
      const { memoryBytes } = defaultsOf();
      expect(await bench.probe("sb-a", script)).toMatch(new RegExp(`${memoryBytes}\\n[^]*4096\\n`));
    },
  );

  test.if(enforced.has("pids"))("a fork bomb stops at the limit of processes", async () => {
    const bomb = `import os, time
n = 0
try:
    while n < 100:
        if os.fork() == 0:
            time.sleep(1000)
        n += 1
except OSError as e:
    print("stopped", n, e.errno)
os.kill(-1, 9)`;
    const out = await bench.probe("sb-bomb", `/usr/bin/python3 -c '${bomb}'`, { pids: 20 });
    const [, forked, errno] = out.match(/stopped (\d+) (\d+)/) ?? [];
    expect(Number(errno)).toBe(constants.errno.EAGAIN);
    // The shell and python3 count too.
    expect(Number(forked)).toBe(18);
  });

  test.if(diskNeeds(true) === undefined)(
    "who writes more than the disk limit allows is told that the disk is full, and the machine's has it not",
    async () => {
      const script = `head -c ${100 * MIB} /dev/zero > /big; echo status $?; df --output=size -B1 / | tail -1
        rm /big; echo again > /small && cat /small; touch /usr/bin/ls && echo copied`;
      const out = await bench.probe("sb-full", script, { disk_bytes: 32 * MIB });
      expect(out).toMatch(/No space left[\s\S]*status 1\n *\d+\nagain\ncopied/);
      expect(Number(/^ *(\d+)$/m.exec(out)?.[1])).toBeLessThanOrEqual(32 * MIB);
      const { blocks } = await stat(join(bench.stateDir, "sandboxes/sb-full/disk.img"));
      expect(blocks * 512).toBeLessThanOrEqual(33 * MIB);
      await bench.remove("sb-full");
      expect(await bench.left()).toEqual([]);
      await until("its loop device is free", () => !backingFiles().includes(bench.stateDir));
    },
  );

  test("who fills /dev/shm is told that it is full, and the sandbox lives", async () => {
    const script = `head -c ${100 * MIB} /dev/zero > /dev/shm/x; echo status $?; df --output=size -B1 /dev/shm | tail -1`;
    const out = await bench.probe("sb-shm", script, { memory_bytes: 64 * MIB });
    expect(out).toMatch(/No space left[\s\S]*status 1\n *33554432\n/);
    await bench.remove("sb-shm");
  });

  test.if(diskNeeds(true) === undefined)("a default limit of disk holds without a wish", async () => {
    await using limited = await Bench.make({ defaults: { diskBytes: 48 * MIB } });
    const out = await limited.probe("sb-a", "df --output=size -B1 / | tail -1");
    expect(Number(out)).toBeLessThanOrEqual(48 * MIB);
  });

  test.if(enforced.has("cpu"))("a cpu limit is the kernel's quota", async () => {
    const out = await bench.probe(
      "sb-cpu",
      "cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/cpu/cpu.cfs_quota_us 2>/dev/null; true",
      { cpu: 0.5 },
    );
    expect(out.trim().split(" ")[0]).toBe("50000");
  });
});
