import { expect, test } from "bun:test";
import { InfoAnswer } from "../../broker/contract/index.ts";
import { check } from "../../broker/contract/validate.ts";
import { type CgroupFacts, cgroupFacts } from "./cgroup.ts";
import { createInfo } from "./info.ts";

const from = (files: Record<string, string>): CgroupFacts => cgroupFacts((path) => files[path]);

test("limits of version 2 are the smallest on the way up, use is our own", () => {
  const facts = from({
    "/proc/self/cgroup": "0::/pods/box\n",
    "/proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup2 rw\n",
    "/sys/fs/cgroup/pods/box/cpu.max": "max 100000\n",
    "/sys/fs/cgroup/pods/cpu.max": "150000 100000\n",
    "/sys/fs/cgroup/pods/box/cpu.stat": "usage_usec 2500\nuser_usec 1\n",
    "/sys/fs/cgroup/pods/box/memory.max": "1073741824\n",
    "/sys/fs/cgroup/pods/memory.max": "536870912\n",
    "/sys/fs/cgroup/pods/box/memory.current": "4096\n",
    "/sys/fs/cgroup/pods/box/pids.max": "max\n",
    "/sys/fs/cgroup/pods/box/pids.current": "3\n",
  });
  expect(facts).toEqual({
    cpus: 1.5,
    cpuUsedMs: 2.5,
    memoryLimitBytes: 536870912,
    memoryUsedBytes: 4096,
    pidsUsed: 3,
  });
});

test("version 1 beside an empty version 2, mounted from a container's own part of the hierarchy", () => {
  const facts = from({
    "/proc/self/cgroup":
      "4:memory:/kubepods/pod1/c1\n3:cpu,cpuacct:/kubepods/pod1/c1\n2:pids:/kubepods/pod1/c1\n0::/\n",
    "/proc/self/mountinfo": [
      "31 23 0:27 /kubepods/pod1/c1 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory",
      "32 23 0:28 /kubepods/pod1/c1 /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct",
      "33 23 0:29 / /sys/fs/cgroup/pids ro - cgroup cgroup rw,pids",
      "34 23 0:30 / /sys/fs/cgroup/unified ro - cgroup2 cgroup2 rw",
    ].join("\n"),
    "/sys/fs/cgroup/memory/memory.limit_in_bytes": "268435456\n",
    "/sys/fs/cgroup/memory/memory.usage_in_bytes": "1000\n",
    "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000\n",
    "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
    "/sys/fs/cgroup/cpu,cpuacct/cpuacct.usage": "7000000\n",
    "/sys/fs/cgroup/pids/kubepods/pod1/c1/pids.max": "64\n",
    "/sys/fs/cgroup/pids/kubepods/pod1/c1/pids.current": "2\n",
    "/sys/fs/cgroup/unified/cpu.stat": "usage_usec 99000000\n",
  });
  expect(facts).toEqual({
    cpus: 0.5,
    cpuUsedMs: 7,
    memoryLimitBytes: 268435456,
    memoryUsedBytes: 1000,
    pidsLimit: 64,
    pidsUsed: 2,
  });
});

test("version 1 that counts the used cpu apart from its limit", () => {
  const facts = from({
    "/proc/self/cgroup": "3:cpuacct:/m/sb-1\n2:cpu:/m/sb-1\n0::/\n",
    "/proc/self/mountinfo": [
      "31 23 0:27 /m/sb-1 /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu",
      "32 23 0:28 /m/sb-1 /sys/fs/cgroup/cpuacct ro - cgroup cgroup rw,cpuacct",
    ].join("\n"),
    "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
    "/sys/fs/cgroup/cpuacct/cpuacct.usage": "12500000\n",
  });
  expect(facts).toEqual({ cpuUsedMs: 12.5 });
});

test("no limit is no figure: neither -1, nor max, nor version 1's largest number", () => {
  const facts = from({
    "/proc/self/cgroup": "2:memory:/\n1:cpu:/\n",
    "/proc/self/mountinfo":
      "31 23 0:27 / /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n32 23 0:28 / /cg\\040cpu ro - cgroup cgroup rw,cpu",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
    "/cg cpu/cpu.cfs_quota_us": "-1\n",
    "/cg cpu/cpu.cfs_period_us": "100000\n",
  });
  expect(facts).toEqual({});
});

test("nothing to read, and nonsense, give no facts and no error", () => {
  expect(from({})).toEqual({});
  expect(from({ "/proc/self/mountinfo": "garbage\n - \n1 2", "/proc/self/cgroup": "::\nx" })).toEqual({});
});

test("info of this machine is a valid answer", async () => {
  const info = await createInfo({
    version: "1.2.3",
    cwd: "/",
    shells: () => ["bash"],
    sessions: () => 2,
    treeEnd: () => "search" as const,
  })();
  const rest = {
    sandbox: "s",
    tenant: "t",
    incarnation: "i",
    generation: 1,
    uptime_ms: 1,
    boot_ms: 1,
    commands_running: 0,
    not_isolated: [],
  };
  expect(check(InfoAnswer, { ...info, ...rest })).toMatchObject({
    version: "1.2.3",
    pid: process.pid,
    sessions: 2,
  });
  expect(info.cpus).toBeGreaterThan(0);
  expect(info.disk_total_bytes ?? 0).toBeGreaterThan(info.disk_free_bytes ?? 0);
  expect(
    await createInfo({
      version: "",
      cwd: "/nope",
      shells: () => [],
      sessions: () => 0,
      treeEnd: () => "search" as const,
    })(),
  ).not.toHaveProperty("disk_total_bytes");
});
