// What only the daemon knows of `info`: the sandbox's processors, memory, processes, disk and shells. What cannot be
// seen is left out; nothing here fails.
import { statfs } from "node:fs/promises";
import { availableParallelism, hostname } from "node:os";
import type { ExecutorInfo } from "../../broker/endpoint/executor.ts";
import { readText } from "../process/read-text.ts";
import { cgroupFacts } from "./cgroup.ts";

export interface InfoOptions {
  /** The daemon's. */
  version: string;
  /** The sandbox's working folder; its file system is the one whose room is told. */
  cwd: string;
  /** The image's shells, best first. */
  shells(): string[];
  /** How many are open. */
  sessions(): number;
  /** As InfoAnswer has it. */
  treeEnd(): "cgroup" | "search";
}

async function disk(path: string): Promise<{ total: number; free: number } | undefined> {
  try {
    const { bsize, blocks, bavail } = await statfs(path);
    return { total: blocks * bsize, free: bavail * bsize };
  } catch {
    return undefined;
  }
}

/** Leaves out what is undefined, so that it does not stand in the answer. */
function known<T extends object>(fields: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  const result: { [K in keyof T]?: Exclude<T[K], undefined> } = {};
  for (const key in fields) {
    const value = fields[key];
    if (value !== undefined) Object.assign(result, { [key]: value });
  }
  return result;
}

export function createInfo(options: InfoOptions): () => Promise<ExecutorInfo> {
  return async () => {
    const facts = cgroupFacts(readText);
    const room = await disk(options.cwd);
    return {
      version: options.version,
      pid: process.pid,
      uid: process.geteuid?.() ?? 0,
      hostname: hostname(),
      cwd: options.cwd,
      shells: options.shells(),
      cpus: Math.min(availableParallelism(), facts.cpus ?? Number.POSITIVE_INFINITY),
      sessions: options.sessions(),
      tree_end: options.treeEnd(),
      ...known({
        cpu_used_ms: facts.cpuUsedMs,
        memory_limit_bytes: facts.memoryLimitBytes,
        memory_used_bytes: facts.memoryUsedBytes,
        pids_limit: facts.pidsLimit,
        pids_used: facts.pidsUsed,
        disk_total_bytes: room?.total,
        disk_free_bytes: room?.free,
      }),
    };
  };
}
