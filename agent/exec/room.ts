// Whether the sandbox has room for more than its commands: a spare shell (native/spare.c), or threads that start commands
// (native/start.c), are not worth one of few processes.
import { cgroupLimits } from "../info/cgroup.ts";
import { type Read, readText } from "../process/read-text.ts";

const MIN_PIDS = 128;
const MIN_MEMORY_BYTES = 64 * 1024 * 1024;

/** By the limits of its cgroup, and by its user's limit of processes, which holds where no cgroup can be written. */
export function hasRoom(read: Read = readText): boolean {
  const { pids = Infinity, memoryBytes = Infinity } = cgroupLimits(read);
  const [, processes = "unlimited"] = /^Max processes +(\S+)/m.exec(read("/proc/self/limits") ?? "") ?? [];
  const ofUser = processes === "unlimited" ? Infinity : Number(processes);
  return Math.min(pids, ofUser) >= MIN_PIDS && memoryBytes >= MIN_MEMORY_BYTES;
}
