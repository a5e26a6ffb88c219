// Whether the kernel killed for memory: the counters of the daemon's own cgroup, v1 and v2.
import { openSync, readSync } from "node:fs";
import { readText } from "./read-text.ts";

/** The folders in which this process' memory cgroup may be seen: with a cgroup namespace it is the root of the mount,
 * without one it is below, by the path that /proc/self/cgroup names. */
function candidates(): { events: string; limit: string }[] {
  const found: { events: string; limit: string }[] = [];
  for (const line of (readText("/proc/self/cgroup") ?? "").split("\n")) {
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
    const bytes = Number.parseInt(readText(limit) ?? "", 10);
    // Version 1 says "none" by a number near 2^63.
    if (Number.isSafeInteger(bytes) && bytes > 0 && bytes < 2 ** 50) return bytes;
  }
  return undefined;
}

/** How long the kernel may take from its decision to a victim's end, ms (it has much memory to give back). */
const DYING_MS = 5_000;
/** Kills that nobody has claimed; more at once are one command's many processes. */
const MAX_UNCLAIMED = 64;

export interface OomKill {
  limitBytes: number | undefined;
}

/** Which SIGKILL was the kernel's for memory. The kernel only counts, and counts for the whole sandbox: so it is looked
 * at the count whenever a command begins or ends (1 to 2 µs), and a command that ended by SIGKILL claims a kill that was
 * first seen since its own start, and not long ago. What that cannot tell apart: a process of one command killed for
 * memory, and within the same seconds another command ended by someone's SIGKILL. */
export class OomKills {
  readonly #limit: string | undefined;
  readonly #now: () => number;
  readonly #reread: (fd: number, text: Buffer) => number;
  readonly #text = Buffer.alloc(512);
  readonly #events: number | undefined;
  #seen: number;
  #unclaimed: number[] = [];

  /** `reread` reads the file to where its content of the last time stands, and answers its bytes, or 0 where it is the same:
   * mostly it is. The engine's takes a fifth of the time. */
  constructor(
    files = candidates(),
    now: () => number = () => performance.now(),
    reread = (fd: number, text: Buffer): number => readSync(fd, text, 0, text.length, 0),
  ) {
    const found = files.find(({ events }) => killsIn(readText(events)) !== undefined);
    this.#limit = found?.limit;
    this.#events = found && openSync(found.events, "r");
    this.#now = now;
    this.#reread = reread;
    this.#seen = 0;
    this.#seen = this.#count();
  }

  #count(): number {
    if (this.#events === undefined) return 0;
    try {
      const length = this.#reread(this.#events, this.#text);
      if (length <= 0) return this.#seen;
      return killsIn(this.#text.toString("latin1", 0, length)) ?? this.#seen;
    } catch {
      return this.#seen;
    }
  }

  /** A command begins or ends. */
  look(): void {
    const count = this.#count();
    if (count === this.#seen) return;
    const now = this.#now();
    const fresh = Array<number>(Math.min(MAX_UNCLAIMED, Math.max(0, count - this.#seen))).fill(now);
    this.#unclaimed = [...this.#unclaimed.filter((at) => now - at < DYING_MS), ...fresh].slice(
      -MAX_UNCLAIMED,
    );
    this.#seen = count;
  }

  /** A command that began at `sinceMs` (performance.now) has ended by SIGKILL: whether that was for memory. */
  claim(sinceMs: number): OomKill | undefined {
    this.look();
    const now = this.#now();
    const mine = this.#unclaimed.findIndex((at) => at > sinceMs && now - at < DYING_MS);
    if (mine < 0) return undefined;
    this.#unclaimed.splice(mine, 1);
    const limit = Number.parseInt(readText(this.#limit ?? "") ?? "", 10);
    return { limitBytes: Number.isSafeInteger(limit) ? limit : undefined };
  }
}
