import { expect, test } from "bun:test";
import { hasRoom } from "./room.ts";

const MIB = 1024 * 1024;
const within = (pids: string, memory: string, processes: string): boolean => {
  const files: Record<string, string> = {
    "/proc/self/mountinfo": "1 2 0:3 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n",
    "/proc/self/cgroup": "0::/\n",
    "/sys/fs/cgroup/pids.max": `${pids}\n`,
    "/sys/fs/cgroup/memory.max": `${memory}\n`,
    "/proc/self/limits": `Max open files            1024     4096     files\nMax processes             ${processes}     9999     processes\n`,
  };
  return hasRoom((path) => files[path]);
};

test("a sandbox of few processes or little memory gets no spare shell, which would be one of them", () => {
  expect(within("max", "max", "unlimited")).toBe(true);
  expect(within("128", String(64 * MIB), "128")).toBe(true);
  expect(within("127", "max", "unlimited")).toBe(false);
  expect(within("max", String(64 * MIB - 1), "unlimited")).toBe(false);
  expect(within("max", "max", "127")).toBe(false);
  expect(hasRoom(() => undefined)).toBe(true);
});
