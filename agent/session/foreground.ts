// Which processes of a session belong to the command that runs: those that started after it. What earlier commands left
// in the background on purpose lives on.
import { readFileSync } from "node:fs";
import { findTree } from "../exec/tree.ts";

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

/** The earliest tick at which a process of a command can have started that began `elapsedMs` ago. To the tick (10 ms),
 * which is what the kernel tells. */
export const sinceTicks = (elapsedMs: number): number =>
  Math.floor(bootTicks() - (elapsedMs / 1000) * TICKS_PER_S) - 1;

/** Living processes of the session, without its shell, that started at that tick or later. */
export function processesSince(session: { marker: string; shell: number }, ticks: number): number[] {
  return findTree(session.marker, session.shell).filter(
    (pid) => pid !== session.shell && (startTicks(pid) ?? -1) >= ticks,
  );
}
