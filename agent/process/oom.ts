// Whether the kernel killed for memory: the counters of the daemon's own cgroup, v1 and v2.
import { readFileSync } from "node:fs";

function read(path: string): string | undefined {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return undefined;
  }
}

/** The folders in which this process' memory cgroup may be seen: with a cgroup namespace it is the root of the mount,
 * without one it is below, by the path that /proc/self/cgroup names. */
function candidates(): { events: string; limit: string }[] {
  const found: { events: string; limit: string }[] = [];
  for (const line of (read("/proc/self/cgroup") ?? "").split("\n")) {
    const [, controllers, path] = line.split(":", 3);
    if (path === undefined) continue;
    if (controllers === "")
      for (const root of ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"])
        for (const folder of [root + path, root])
          found.push({ events: `${folder}/memory.events`, limit: `${folder}/memory.max` });
    else if (controllers?.split(",").includes("memory"))
      for (const folder of [`/sys/fs/cgroup/memory${path}`, "/sys/fs/cgroup/memory"])
        found.push({ events: `${folder}/memory.oom_control`, limit: `${folder}/memory.limit_in_bytes` });
  }
  return found;
}

const killsIn = (text: string | undefined): number | undefined => {
  const match = /^oom_kill (\d+)$/m.exec(text ?? "");
  return match === null ? undefined : Number(match[1]);
};

/** The limit of this process' cgroup, bytes; undefined where there is none, or none is seen. */
export function memoryLimitBytes(files = candidates()): number | undefined {
  for (const { limit } of files) {
    const bytes = Number.parseInt(read(limit) ?? "", 10);
    // Version 1 says "none" by a number near 2^63.
    if (Number.isSafeInteger(bytes) && bytes > 0 && bytes < 2 ** 50) return bytes;
  }
  return undefined;
}

export class OomCounter {
  readonly #files: { events: string; limit: string } | undefined;
  #seen: number;

  constructor(files = candidates()) {
    this.#files = files.find(({ events }) => killsIn(read(events)) !== undefined);
    this.#seen = this.#count();
  }

  #count(): number {
    return killsIn(this.#files && read(this.#files.events)) ?? 0;
  }

  /** The limit, where the kernel has killed since the last call; undefined where it has not, or where the counters
   * cannot be seen. */
  take(): { limitBytes: number | undefined } | undefined {
    const count = this.#count();
    if (count <= this.#seen) return undefined;
    this.#seen = count;
    const limit = Number.parseInt(read(this.#files?.limit ?? "") ?? "", 10);
    return { limitBytes: Number.isSafeInteger(limit) ? limit : undefined };
  }
}
