// Limits by cgroup, v1 or v2, below the group the mesh itself runs in, so that its own limits go on to hold.
import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { readdir } from "node:fs/promises";
import { basename, join } from "node:path";
import { errnoOf, ProviderError, type SandboxSpec } from "../../../broker/contract/index.ts";

export const CONTROLLERS = ["cpu", "memory", "pids"] as const;
export type Controller = (typeof CONTROLLERS)[number];
/** A place below which groups can be made. Version 2 has one for all its controllers, and without any it still ends all that
 * is in a group at once; of version 1, one without any counts the cpu that was used, where that is not mounted with `cpu`. */
export interface Hierarchy {
  version: 1 | 2;
  controllers: Controller[];
  base: string;
}
/** It limits nothing; `info` tells what it counts. */
const ACCOUNTING = "cpuacct";
const COMMANDS = "commands";
const CPU_PERIOD_US = 100_000;
const isController = (name: string): name is Controller => CONTROLLERS.some((c) => c === name);

/** What of /proc/self/mountinfo and /proc/self/cgroup names as hierarchies, whether writable or not. Pure. */
export function parseHierarchies(mountinfo: string, cgroup: string): Hierarchy[] {
  const own = new Map(
    cgroup.split("\n").flatMap((line) => {
      const match = line.match(/^\d+:([^:]*):(.*)$/);
      if (match === null) return [];
      return (match[1] ?? "").split(",").map((name) => [name, match[2] ?? "/"] as const);
    }),
  );
  return mountinfo.split("\n").flatMap((line): Hierarchy[] => {
    const [left = "", right = ""] = line.split(" - ");
    const [, , , root = "/", mountPoint = ""] = left.split(" ");
    const [type, , options = ""] = right.split(" ");
    if (type === "cgroup2") {
      return [{ version: 2, controllers: [], base: join(mountPoint, below(own.get("") ?? "/", root)) }];
    }
    const names = options.split(",");
    const controllers = names.filter(isController);
    const first = controllers[0] ?? names.find((name) => name === ACCOUNTING);
    if (type !== "cgroup" || first === undefined) return [];
    return [{ version: 1, controllers, base: join(mountPoint, below(own.get(first) ?? "/", root)) }];
  });
}

const below = (path: string, root: string): string =>
  root !== "/" && path.startsWith(root) ? path.slice(root.length) : path;

/** The values to write, by controller. Pure. */
export function limitsOf(spec: SandboxSpec, version: 1 | 2): Partial<Record<Controller, [string, string][]>> {
  const quota = spec.cpu === undefined ? undefined : Math.max(1000, Math.round(spec.cpu * CPU_PERIOD_US));
  const { memory_bytes: memory, pids } = spec;
  const limits: Partial<Record<Controller, [string, string][]>> = {};
  if (version === 1) {
    if (quota !== undefined) {
      limits.cpu = [
        ["cpu.cfs_period_us", `${CPU_PERIOD_US}`],
        ["cpu.cfs_quota_us", `${quota}`],
      ];
    }
    if (memory !== undefined) limits.memory = [["memory.limit_in_bytes", `${memory}`]];
  } else {
    if (quota !== undefined) limits.cpu = [["cpu.max", `${quota} ${CPU_PERIOD_US}`]];
    if (memory !== undefined) limits.memory = [["memory.max", `${memory}`]];
  }
  if (pids !== undefined) limits.pids = [["pids.max", `${pids}`]];
  return limits;
}

/** Swap would make a memory limit a matter of patience; where the kernel accounts it, it is limited too. */
const SWAP: Record<1 | 2, (memory: number) => [string, string]> = {
  1: (memory) => ["memory.memsw.limit_in_bytes", `${memory}`],
  2: () => ["memory.swap.max", "0"],
};

export interface SandboxCgroups {
  /** Version 1: the files to write one's thread id to. `tasks`, not `cgroup.procs`, which moves whole processes and
   * for that waits for all cpus: 8 to 16 ms instead of 0.5 for a process of one thread. */
  tasks: string[];
  /** Version 2's. */
  folder: string | null;
  /** Below it, for the daemon to make its commands' groups in: what it is given limits nothing, since the limits are the
   * folder's above. */
  commands: string | null;
  /** The file that counts the kernel's kills for memory. */
  oom: string | null;
  /** Folder → where the sandbox sees it. */
  views: Record<string, string>;
}

export class Cgroups {
  readonly #hierarchies: Hierarchy[];
  readonly #mark: string;

  constructor(mark: string, hierarchies: Hierarchy[] = detect()) {
    this.#mark = mark;
    this.#hierarchies = hierarchies;
  }

  /** Which limits the kernel will hold here. */
  get enforced(): ReadonlySet<Controller> {
    return new Set(this.#hierarchies.flatMap((h) => h.controllers));
  }

  /** Throws ProviderError; what was made by then is left to `remove`. */
  make(sandbox: string, spec: SandboxSpec): SandboxCgroups {
    const made: SandboxCgroups = { tasks: [], folder: null, commands: null, oom: null, views: {} };
    for (const hierarchy of this.#hierarchies) {
      const folder = this.#folder(hierarchy, sandbox);
      try {
        mkdirSync(folder, { recursive: true });
        if (hierarchy.controllers.length > 0 && hierarchy.version === 2)
          delegate(join(hierarchy.base, this.#mark), hierarchy.controllers);
        const limits = limitsOf(spec, hierarchy.version);
        for (const [file, value] of hierarchy.controllers.flatMap((c) => limits[c] ?? [])) {
          writeFileSync(join(folder, file), value);
        }
        if (hierarchy.version === 2) mkdirSync(join(folder, COMMANDS), { recursive: true });
      } catch (cause) {
        throw new ProviderError(`sandbox ${sandbox}: cgroup ${folder}: ${(cause as Error).message}`, {
          sandbox,
          cause,
        });
      }
      if (spec.memory_bytes !== undefined && hierarchy.controllers.includes("memory")) {
        limitSwap(folder, SWAP[hierarchy.version](spec.memory_bytes));
      }
      if (hierarchy.controllers.includes("memory"))
        made.oom = join(folder, hierarchy.version === 2 ? "memory.events" : "memory.oom_control");
      if (hierarchy.version === 1) made.tasks.push(join(folder, "tasks"));
      else {
        made.folder = folder;
        made.commands = join(folder, COMMANDS);
      }
      // Where version 1 has the controllers, version 2 has nothing to see.
      if (hierarchy.version === 1 || hierarchy.controllers.length > 0)
        made.views[folder] =
          hierarchy.version === 2 ? "/sys/fs/cgroup" : `/sys/fs/cgroup/${basename(mountOf(hierarchy))}`;
    }
    return made;
  }

  /** Processes in the sandbox's groups. */
  processes(sandbox: string): number[] {
    const pids = this.#hierarchies.flatMap((h) =>
      [this.#folder(h, sandbox), ...groupsBelow(this.#folder(h, sandbox))].flatMap((folder) => {
        try {
          return readFileSync(join(folder, "cgroup.procs"), "utf8").trim().split("\n");
        } catch {
          return [];
        }
      }),
    );
    return [...new Set(pids.map(Number))].filter((pid) => pid > 1);
  }

  /** Removes the sandbox's groups; the ones still there (with a process that has not quite gone) are answered. */
  remove(sandbox: string): string[] {
    return this.#hierarchies.map((h) => this.#folder(h, sandbox)).filter((folder) => !removeGroups(folder));
  }

  /** Names of the sandboxes that have groups, once for each hierarchy. */
  async names(): Promise<string[]> {
    const all = await Promise.all(
      this.#hierarchies.map(async (h) => {
        const entries = await readdir(join(h.base, this.#mark), { withFileTypes: true }).catch(() => []);
        return entries.filter((e) => e.isDirectory()).map((e) => e.name);
      }),
    );
    return all.flat();
  }

  /** Removes the mesh's own groups, as far as they are empty; whether there were any. */
  close(): boolean {
    const own = this.#hierarchies
      .map(({ base }) => join(base, this.#mark))
      .filter((folder) => existsSync(folder));
    for (const folder of own) removeGroups(folder);
    return own.length > 0;
  }

  #folder(hierarchy: Hierarchy, sandbox: string): string {
    return join(hierarchy.base, this.#mark, sandbox);
  }
}

/** `cpu` or `cpu,cpuacct`: the folder's name below /sys/fs/cgroup. */
const mountOf = (h: Hierarchy): string => {
  const parts = h.base.split("/");
  return parts.slice(0, 5).join("/");
};

function limitSwap(folder: string, [file, value]: [string, string]): void {
  try {
    writeFileSync(join(folder, file), value);
  } catch {
    // The kernel does not account swap.
  }
}

function delegate(group: string, controllers: readonly Controller[]): void {
  writeFileSync(join(group, "cgroup.subtree_control"), controllers.map((c) => `+${c}`).join(" "));
}

/** The groups below one, such as a sandbox's daemon makes; those above first. */
function groupsBelow(folder: string): string[] {
  try {
    const below = readdirSync(folder, { withFileTypes: true, recursive: true });
    return below.filter((entry) => entry.isDirectory()).map(({ parentPath, name }) => join(parentPath, name));
  } catch {
    return [];
  }
}

/** A group and those below it, as far as they are empty; whether it is gone. */
function removeGroups(folder: string): boolean {
  // Most have none below, or are gone already.
  if (removeGroup(folder)) return true;
  for (const below of groupsBelow(folder).reverse()) removeGroup(below);
  return removeGroup(folder);
}

function removeGroup(folder: string): boolean {
  try {
    rmdirSync(folder);
    return true;
  } catch (error) {
    return errnoOf(error) === "ENOENT";
  }
}

/** The hierarchies that this process may make groups in, with the controllers it can give them. */
export function detect(): Hierarchy[] {
  const read = (path: string): string => {
    try {
      return readFileSync(path, "utf8");
    } catch {
      return "";
    }
  };
  return parseHierarchies(read("/proc/self/mountinfo"), read("/proc/self/cgroup")).flatMap((h) => {
    const probe = join(h.base, `sandmesh-probe-${process.pid}`);
    try {
      mkdirSync(probe);
      if (h.version === 1) return [h];
      const controllers = enable(h.base, probe);
      return controllers.length > 0 || existsSync(join(probe, "cgroup.kill")) ? [{ ...h, controllers }] : [];
    } catch {
      return [];
    } finally {
      removeGroup(probe);
    }
  });
}

/** Turns the controllers on below `base`. Refused (EBUSY) where `base` has processes and is not the root. */
function enable(base: string, probe: string): Controller[] {
  const there = readFileSync(join(base, "cgroup.controllers"), "utf8").trim().split(" ").filter(isController);
  for (const controller of there) {
    try {
      delegate(base, [controller]);
    } catch {
      // Not delegated to us.
    }
  }
  return readFileSync(join(probe, "cgroup.controllers"), "utf8").trim().split(" ").filter(isController);
}
