// What all of a mesh costs in a burst: CPU, of threads that have ended too, and memory of its processes, from /proc.
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { processes } from "../processes.ts";

export interface Usage {
  cpuS: number;
  rssMb: number;
}

/** Ticks of /proc/<pid>/stat: USER_HZ, which is 100 on every Linux. */
const TICKS_A_SECOND = 100;

/** CPU seconds so far and resident MB, summed; a process that has ended counts as nothing. */
export function usageOf(pids: readonly number[]): Usage {
  let cpuS = 0;
  let rssMb = 0;
  for (const pid of pids) {
    if (!existsSync(`/proc/${pid}/stat`)) continue;
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    cpuS += (Number(fields[11]) + Number(fields[12])) / TICKS_A_SECOND;
    const rss = /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1];
    rssMb += Number(rss ?? 0) / 1024;
  }
  return { cpuS, rssMb };
}

export interface MeshPids {
  pool: number[];
  nats: number[];
  /** Of the simulated provider: they start with the first create or watch. */
  hosts: number[];
}

/** The processes of the mesh whose home is `home`, by their arguments. */
export function meshPids(home: string): MeshPids {
  const found: MeshPids = { pool: [], nats: [], hosts: [] };
  for (const { pid, argv } of processes()) {
    const [program = ""] = argv;
    if (argv.some((each) => each === join(home, "pool", "config.json"))) {
      if (!program.endsWith("setpriv")) found.pool.push(pid);
    } else if (argv.some((each) => each.startsWith(join(home, "nats")))) found.nats.push(pid);
    else if (argv.some((each) => each.startsWith(join(home, "simulated")))) found.hosts.push(pid);
  }
  return found;
}
