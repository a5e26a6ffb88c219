// Limits and use of the daemon's own cgroup, version 1 or 2, as far as it can be seen. `read` gives a file's text, or
// undefined where there is none: nothing here throws.
import type { Read } from "../process/read-text.ts";

export interface CgroupFacts {
  /** CPUs that the quota allows, such as 0.5; undefined without one. */
  cpus?: number;
  cpuUsedMs?: number;
  memoryLimitBytes?: number;
  memoryUsedBytes?: number;
  pidsLimit?: number;
  pidsUsed?: number;
}

type Controller = "cpu" | "cpuacct" | "memory" | "pids";

interface Mount {
  version: 1 | 2;
  /** Which part of the hierarchy is mounted, and where. */
  root: string;
  at: string;
  controllers: readonly string[];
}

/** The cgroup mounts in the text of /proc/self/mountinfo (proc(5)); octal escapes are undone. */
function cgroupMounts(mountinfo: string): Mount[] {
  const mounts: Mount[] = [];
  const plain = (text: string): string =>
    text.replace(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)));
  for (const line of mountinfo.split("\n")) {
    const [before = "", after = ""] = line.split(" - ", 2);
    const [, , , root, at] = before.split(" ");
    const [type, , options = ""] = after.split(" ");
    if (root === undefined || at === undefined) continue;
    if (type === "cgroup2") mounts.push({ version: 2, root: plain(root), at: plain(at), controllers: [] });
    if (type === "cgroup")
      mounts.push({ version: 1, root: plain(root), at: plain(at), controllers: options.split(",") });
  }
  return mounts;
}

/** The folders of our cgroup in that hierarchy and of those above it as far as they are mounted, innermost first. */
function foldersOf(mount: Mount, own: string | undefined): string[] {
  let below = own ?? "/";
  // A mount of a part shows paths below that part; with a cgroup namespace the path may not even be in it ("/..").
  if (mount.root !== "/" && below.startsWith(mount.root)) below = below.slice(mount.root.length);
  else if (mount.root !== "/" || below.startsWith("/..")) below = "";
  const folders: string[] = [];
  for (let path = below.replace(/\/+$/, ""); path !== ""; path = path.slice(0, path.lastIndexOf("/")))
    folders.push(mount.at + path);
  return [...folders, mount.at];
}

class Hierarchies {
  readonly #read: Read;
  readonly #mounts: Mount[];
  readonly #own = new Map<string, string>();

  constructor(read: Read) {
    this.#read = read;
    this.#mounts = cgroupMounts(read("/proc/self/mountinfo") ?? "");
    for (const line of (read("/proc/self/cgroup") ?? "").split("\n")) {
      const [, names, path] = /^\d+:([^:]*):(.*)$/.exec(line) ?? [];
      if (names === undefined || path === undefined) continue;
      for (const name of names.split(",")) this.#own.set(name, path);
    }
  }

  folders(version: 1 | 2, controller: Controller): string[] {
    const mount = this.#mounts.find(
      (m) => m.version === version && (version === 2 || m.controllers.includes(controller)),
    );
    return mount === undefined ? [] : foldersOf(mount, this.#own.get(version === 2 ? "" : controller));
  }

  /** The smallest that any level sets. */
  limit(version: 1 | 2, controller: Controller, file: string): number | undefined {
    const found = this.folders(version, controller).flatMap((folder) => {
      const value = wholeNumber(this.#read(`${folder}/${file}`));
      return value === undefined ? [] : [value];
    });
    return found.length === 0 ? undefined : Math.min(...found);
  }

  /** Of our own cgroup: the innermost folder that has the file. */
  own(version: 1 | 2, controller: Controller, file: string): string | undefined {
    for (const folder of this.folders(version, controller)) {
      const text = this.#read(`${folder}/${file}`);
      if (text !== undefined) return text;
    }
    return undefined;
  }

  cpus(): number | undefined {
    const ratios: number[] = [];
    const add = (quota: string | undefined, period: string | undefined): void => {
      const ratio = Number(quota ?? "max") / Number(period ?? "100000");
      if (Number.isFinite(ratio) && ratio > 0) ratios.push(ratio);
    };
    for (const folder of this.folders(2, "cpu")) {
      const [quota, period] = (this.#read(`${folder}/cpu.max`) ?? "max").trim().split(" ");
      add(quota, period);
    }
    for (const folder of this.folders(1, "cpu"))
      add(this.#read(`${folder}/cpu.cfs_quota_us`), this.#read(`${folder}/cpu.cfs_period_us`));
    return ratios.length === 0 ? undefined : Math.min(...ratios);
  }
}

/** v1 says "no limit" by the largest whole number of pages. */
const UNLIMITED = 2 ** 60;

function wholeNumber(text: string | undefined): number | undefined {
  const match = /^\s*(\d+)\s*$/.exec(text ?? "");
  const value = Number(match?.[1] ?? Number.NaN);
  return Number.isFinite(value) && value < UNLIMITED ? value : undefined;
}

/** The folder of our own cgroup of version 2, as far as paths tell it. */
export const ownFolder = (read: Read): string | undefined => new Hierarchies(read).folders(2, "cpu")[0];

// Where both versions are mounted (hybrid), the controllers are in version 1, and 2 shows the root's figures.
const memoryLimit = (groups: Hierarchies): number | undefined =>
  groups.limit(1, "memory", "memory.limit_in_bytes") ?? groups.limit(2, "memory", "memory.max");
const pidsLimit = (groups: Hierarchies): number | undefined =>
  groups.limit(1, "pids", "pids.max") ?? groups.limit(2, "pids", "pids.max");

/** Without what is in use, which the kernel counts up over all processors when it is read. */
export function cgroupLimits(read: Read): { memoryBytes: number | undefined; pids: number | undefined } {
  const groups = new Hierarchies(read);
  return { memoryBytes: memoryLimit(groups), pids: pidsLimit(groups) };
}

export function cgroupFacts(read: Read): CgroupFacts {
  const groups = new Hierarchies(read);
  const facts: CgroupFacts = {};
  const set = <K extends keyof CgroupFacts>(key: K, ...values: (number | undefined)[]): void => {
    const value = values.find((v) => v !== undefined);
    if (value !== undefined) facts[key] = value;
  };
  const usage = /^usage_usec (\d+)$/m.exec(groups.own(2, "cpu", "cpu.stat") ?? "");
  const nanoseconds = wholeNumber(groups.own(1, "cpuacct", "cpuacct.usage"));
  set("cpus", groups.cpus());
  set(
    "cpuUsedMs",
    nanoseconds === undefined ? undefined : nanoseconds / 1e6,
    usage === null ? undefined : Number(usage[1]) / 1000,
  );
  set("memoryLimitBytes", memoryLimit(groups));
  set(
    "memoryUsedBytes",
    wholeNumber(groups.own(1, "memory", "memory.usage_in_bytes")),
    wholeNumber(groups.own(2, "memory", "memory.current")),
  );
  set("pidsLimit", pidsLimit(groups));
  set(
    "pidsUsed",
    wholeNumber(groups.own(1, "pids", "pids.current")),
    wholeNumber(groups.own(2, "pids", "pids.current")),
  );
  return facts;
}
