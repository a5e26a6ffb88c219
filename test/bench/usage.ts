// What the processes on one sandbox's path use, to the microsecond, from /proc. Linux, and as root (the daemon hides from
// others). What all of a mesh uses in a burst: processes.ts.
import { readdirSync, readFileSync } from "node:fs";
import { processes } from "../processes.ts";

/** Through which a command's bytes go. */
export interface PathPids {
  client: number;
  server: number;
  daemon: number;
  relay: number | undefined;
}

/** Of a mesh with one sandbox of the local provider, whose state is in `home`. */
export function pathPids(home: string): PathPids {
  const all = processes().map(({ pid, parent, argv }) => ({ pid, parent, args: argv.join(" ") }));
  const parents = new Map(all.map(({ pid, parent }) => [pid, parent]));
  const ours = new Set(all.filter(({ args }) => args.includes(home)).map(({ pid }) => pid));
  const below = (pid: number): boolean => {
    for (let at: number | undefined = pid; at !== undefined && at > 1; at = parents.get(at))
      if (ours.has(at)) return true;
    return false;
  };
  const find = (mark: string): number | undefined =>
    all.find(({ pid, args }) => args.includes(mark) && !args.startsWith("/usr/bin/python") && below(pid))
      ?.pid;
  const need = (mark: string): number => {
    const pid = find(mark);
    if (pid === undefined) throw new Error(`no ${mark} runs in this mesh`);
    return pid;
  };
  const [server, daemon] = [need("nats-server"), need("sandmesh-daemon")];
  return { client: process.pid, server, daemon, relay: find("relay-process") };
}

/** CPU time of each thread that lives, microseconds. */
function cpuOfThreads(pid: number): Map<string, number> {
  const used = new Map<string, number>();
  for (const task of readdirSync(`/proc/${pid}/task`)) {
    try {
      const [ns] = readFileSync(`/proc/${pid}/task/${task}/schedstat`, "latin1").split(" ");
      used.set(task, Number(ns) / 1000);
    } catch {
      // It has ended meanwhile.
    }
  }
  return used;
}

/** CPU time of all threads that live, microseconds. */
export const cpuUs = (pid: number): number =>
  [...cpuOfThreads(pid).values()].reduce((sum, us) => sum + us, 0);

/** What was used between two looks. A thread that ended meanwhile took its count with it: what it had used before must
 * not be taken off from what the others used. */
export function usedBetween(before: ReadonlyMap<string, number>, after: ReadonlyMap<string, number>): number {
  let us = 0;
  for (const [task, total] of after) us += Math.max(0, total - (before.get(task) ?? 0));
  return us;
}

/** Private and dirty memory, MB (2^20). */
export function privateDirtyMb(pid: number): number {
  const rollup = readFileSync(`/proc/${pid}/smaps_rollup`, "latin1");
  return Number(/Private_Dirty:\s+(\d+)/.exec(rollup)?.[1]) / 1024;
}

/** How often any thread of it went to sleep by itself, so far. */
export function sleeps(pid: number): number {
  return readdirSync(`/proc/${pid}/task`)
    .map((task) => readFileSync(`/proc/${pid}/task/${task}/status`, "latin1"))
    .reduce((sum, status) => sum + Number(/^voluntary_ctxt_switches:\s+(\d+)/m.exec(status)?.[1]), 0);
}

/** Adds up what each process uses while `work` is under way, over several calls. */
export class CpuMeter {
  readonly #pids: PathPids;
  readonly #used = { client: 0, server: 0, daemon: 0, relay: 0 };
  #count = 0;

  constructor(pids: PathPids) {
    this.#pids = pids;
  }

  async during<T>(count: number, work: () => Promise<T>): Promise<T> {
    const before = this.#now();
    const result = await work();
    const after = this.#now();
    for (const name of ["client", "server", "daemon", "relay"] as const)
      this.#used[name] += usedBetween(before[name], after[name]);
    this.#count += count;
    return result;
  }

  #now() {
    const { client, server, daemon, relay } = this.#pids;
    return {
      client: cpuOfThreads(client),
      server: cpuOfThreads(server),
      daemon: cpuOfThreads(daemon),
      relay: relay === undefined ? new Map<string, number>() : cpuOfThreads(relay),
    };
  }

  /** Microseconds each of what was counted (a command, an MB), as fields of a report. */
  fields(prefix = "", unit = "cpu_us"): Record<string, number> {
    return Object.fromEntries(
      Object.entries(this.#used).map(([name, us]) => [
        `${prefix}${name}_${unit}`,
        Math.round(us / this.#count),
      ]),
    );
  }
}
