// Whether a process waits for the next line of a pipe: as the kernel sees it, whatever names mean in a shell by now.
import { fstatSync, readFileSync, readlinkSync } from "node:fs";

/** read(2), by its number on this kind of machine. */
const READ = process.arch === "arm64" ? 63 : 0;

/** Whether the process is in read(2) on the pipe whose one end here is `end`. False where the kernel does not tell. */
export function awaitsPipe(pid: number, end: number): boolean {
  try {
    // "NUMBER ARGUMENT…", or "running".
    const [number, descriptor] = readFileSync(`/proc/${pid}/syscall`, "latin1").split(" ");
    if (number !== String(READ) || descriptor === undefined) return false;
    return readlinkSync(`/proc/${pid}/fd/${Number(descriptor)}`) === `pipe:[${fstatSync(end).ino}]`;
  } catch {
    // It has ended, or may not be looked at.
    return false;
  }
}
