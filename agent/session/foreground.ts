// Which processes of a session belong to the command that runs: those that started after it. What earlier commands left
// in the background on purpose lives on.
import { openSync, readFileSync, readSync } from "node:fs";
import { findTree, type Held } from "../exec/tree.ts";

/** The kernel counts process starts in this unit towards user space, whatever its own (USER_HZ). */
const TICKS_PER_S = 100;

/** Files of the kernel's that are opened once: what tells a command's processes from others must also be there where no
 * descriptor is left. */
const kept = new Map<string, number>();
const text = Buffer.alloc(128);

/** One system call. */
function reread(path: string): string {
  let file = kept.get(path);
  if (file === undefined) {
    file = openSync(path, "r");
    kept.set(path, file);
  }
  return text.toString("latin1", 0, readSync(file, text, 0, text.length, 0));
}

const bootTicks = (): number => Number.parseFloat(reread("/proc/uptime")) * TICKS_PER_S;

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

/** The pid that was given last. Cheap (one system call), so it is noted at the start of each command. */
export function lastPid(): number {
  const line = reread("/proc/loadavg");
  return Number(line.slice(line.lastIndexOf(" ") + 1));
}

/** Opens what later moments need; once done, they need no more descriptors. */
export function openMoments(): void {
  momentAgo(0, lastPid());
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
