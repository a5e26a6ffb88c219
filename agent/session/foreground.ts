// Which processes of a session belong to the command that runs: those that started after it. What earlier commands left
// in the background on purpose lives on.
import { openSync, readFileSync, readSync } from "node:fs";
import { findTree, type Held } from "../exec/tree.ts";

/** The kernel counts process starts in this unit towards user space, whatever its own (USER_HZ). */
const TICKS_PER_S = 100;

function bootTicks(): number {
  return Number.parseFloat(readFileSync("/proc/uptime", "latin1")) * TICKS_PER_S;
}

/** When it started, in ticks since boot; undefined where it has ended. */
export function startTicks(pid: number): number | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19]);
  } catch {
    return undefined;
  }
}

/** A moment, as far as process starts tell it: ticks are 10 ms long, so within them the pids decide. */
export interface Moment {
  ticks: number;
  lastPid: number;
}

let loadavg: number | undefined;
const text = Buffer.alloc(128);

/** The pid that was given last. Cheap (one system call), so it is noted at the start of each command. */
export function lastPid(): number {
  loadavg ??= openSync("/proc/loadavg", "r");
  const line = text.toString("latin1", 0, readSync(loadavg, text, 0, text.length, 0));
  return Number(line.slice(line.lastIndexOf(" ") + 1));
}

/** The moment `elapsedMs` ago at which `pid` was the last. */
export const momentAgo = (elapsedMs: number, pid: number): Moment => ({
  ticks: Math.floor(bootTicks() - (elapsedMs / 1000) * TICKS_PER_S),
  lastPid: pid,
});

/** Whether a process that started at `ticks` did so after the moment. Pure. */
export function startedAfter(moment: Moment, pid: number, ticks: number | undefined): boolean {
  if (ticks === undefined || ticks < moment.ticks - 1) return false;
  // Pids start anew some day, but not within two ticks.
  return ticks > moment.ticks + 1 || pid > moment.lastPid;
}

export interface SessionProcesses {
  marker: string;
  shell: number;
  group: Held | undefined;
}

/** Living processes of the session, without its shell, that started after the moment. */
export async function processesSince(
  { marker, shell, group }: SessionProcesses,
  moment: Moment,
): Promise<number[]> {
  return (await findTree(marker, shell, group)).filter(
    (pid) => pid !== shell && startedAfter(moment, pid, startTicks(pid)),
  );
}
