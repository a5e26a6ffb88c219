// The processes of this machine, from /proc, for tests and benchmarks.
import { readdirSync, readFileSync } from "node:fs";

export interface Process {
  pid: number;
  parent: number;
  argv: string[];
}

/** All that live; what has ended while we looked, and zombies, are left out. */
export function processes(): Process[] {
  const found: Process[] = [];
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const stat = readFileSync(`/proc/${name}/stat`, "latin1");
      const [state, parent] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
      if (state === "Z") continue;
      const argv = readFileSync(`/proc/${name}/cmdline`, "utf8").split("\0");
      found.push({ pid: Number(name), parent: Number(parent), argv });
    } catch {
      // Ended while we looked.
    }
  }
  return found;
}

/** The arguments of those that have the folder, or something in it, among them: a mesh's, by its home. */
export const processesOf = (folder: string): string[] =>
  processes()
    .filter(({ argv }) => argv.some((arg) => arg === folder || arg.startsWith(`${folder}/`)))
    .map(({ argv }) => argv.join(" "));
