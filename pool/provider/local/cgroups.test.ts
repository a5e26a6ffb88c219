// Which cgroup hierarchies there are, from recorded machines, and what limits come to in each version.
import { expect, test } from "bun:test";
import { limitsOf, parseHierarchies } from "./cgroups.ts";

test("a version 2 machine has one hierarchy, below the group we run in", () => {
  const mountinfo = "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate";
  const cgroup = "0::/user.slice/user-1000.slice/session-2.scope\n";
  expect(parseHierarchies(mountinfo, cgroup)).toEqual([
    { version: 2, controllers: [], base: "/sys/fs/cgroup/user.slice/user-1000.slice/session-2.scope" },
  ]);
});

test("a version 1 machine has one for each controller, also where two share a mount", () => {
  const mountinfo = [
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755",
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct",
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
    "40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd",
  ].join("\n");
  expect(parseHierarchies(mountinfo, "4:memory:/api/d38\n1:cpu,cpuacct:/\n1:name=systemd:/")).toEqual([
    { version: 1, controllers: ["cpu"], base: "/sys/fs/cgroup/cpu,cpuacct/" },
    { version: 1, controllers: ["memory"], base: "/sys/fs/cgroup/memory/api/d38" },
  ]);
});

test("the cpu that is used is counted also where version 1 mounts that apart from its limit", () => {
  const mountinfo = [
    "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu",
    "33 31 0:30 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct",
    "34 31 0:31 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio",
  ].join("\n");
  expect(parseHierarchies(mountinfo, "2:cpuacct:/api/d38\n1:cpu:/api/d38\n")).toEqual([
    { version: 1, controllers: ["cpu"], base: "/sys/fs/cgroup/cpu/api/d38" },
    { version: 1, controllers: [], base: "/sys/fs/cgroup/cpuacct/api/d38" },
  ]);
});

test("in a container, whose cgroup mount shows a subtree, the path below it counts", () => {
  const mountinfo = "35 31 0:32 /docker/ab /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory";
  expect(parseHierarchies(mountinfo, "4:memory:/docker/ab")).toEqual([
    { version: 1, controllers: ["memory"], base: "/sys/fs/cgroup/memory" },
  ]);
});

test("limits in both versions' terms; half a core is half a period", () => {
  const spec = { image: "host", cpu: 0.5, memory_bytes: 1 << 26, pids: 64 };
  expect(limitsOf(spec, 1)).toEqual({
    cpu: [
      ["cpu.cfs_period_us", "100000"],
      ["cpu.cfs_quota_us", "50000"],
    ],
    memory: [["memory.limit_in_bytes", "67108864"]],
    pids: [["pids.max", "64"]],
  });
  expect(limitsOf(spec, 2)).toEqual({
    cpu: [["cpu.max", "50000 100000"]],
    memory: [["memory.max", "67108864"]],
    pids: [["pids.max", "64"]],
  });
});
