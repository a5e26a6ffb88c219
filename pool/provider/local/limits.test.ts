// Limits are held by the kernel, and what happens at them is told as what it was.
import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { constants } from "node:os";
import { until } from "../contract.test-suite.ts";
import type { ProviderEvent } from "../provider.ts";
import { Cgroups } from "./cgroups.ts";
import { Bench } from "./testing.ts";

const { enforced } = new Cgroups("sandmesh-test");
const MIB = 1024 * 1024;

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

  test.if(enforced.has("memory"))("a command over the memory limit dies, and the sandbox lives", async () => {
    const script = `cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null
      python3 -c 'b = bytearray(200 * ${MIB})'; echo status $?`;
    const out = await bench.probe("sb-a", script, { memory_bytes: 64 * MIB });
    expect(out).toContain(`${64 * MIB}`);
    expect(out).toContain("status 137");
  });

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

  test.if(enforced.has("cpu"))("a cpu limit is the kernel's quota", async () => {
    const out = await bench.probe(
      "sb-cpu",
      "cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/cpu/cpu.cfs_quota_us 2>/dev/null; true",
      { cpu: 0.5 },
    );
    expect(out.trim().split(" ")[0]).toBe("50000");
  });
});
