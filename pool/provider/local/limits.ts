// The limits of a sandbox that asks for none, and what of its limits this machine cannot hold.
import { availableParallelism, release, totalmem } from "node:os";
import type { SandboxSpec } from "../../../broker/contract/index.ts";
import { CONTROLLERS, type Controller } from "./cgroups.ts";
import { diskNeeds } from "./disk.ts";

export interface DefaultLimits {
  memoryBytes: number;
  pids: number;
  /** Of the writable layer; left out: none, since a file system of its own costs each boot some 0.1 s. */
  diskBytes?: number;
}

const GIB = 1024 ** 3;
/** Enough for the builds and test suites of common tasks. */
const MOST_MEMORY_BYTES = 4 * GIB;
/** Never all of the machine: what one command uses up ends that command, and neither the mesh nor its neighbours. */
const SHARE_OF_MACHINE = 2;
/** Processes and threads. A machine has 32,768 by default: without this, one fork bomb takes the mesh and the machine
 * with it. More than builds and test suites need. */
const DEFAULT_PIDS = 4096;
/** Page sizes go up to 64 KiB, and the kernel rounds a limit down to pages. */
const ROUND_BYTES = 64 * 1024;

/** `machineBytes`: what the machine has, or the group that the mesh itself is limited by. */
export function defaultsOf(machineBytes: number = memoryHere()): DefaultLimits {
  const share = Math.floor(machineBytes / SHARE_OF_MACHINE / ROUND_BYTES) * ROUND_BYTES;
  return { memoryBytes: Math.min(MOST_MEMORY_BYTES, share), pids: DEFAULT_PIDS };
}

function memoryHere(): number {
  const limit = process.constrainedMemory();
  return limit > 0 ? Math.min(totalmem(), limit) : totalmem();
}

/** Whether RLIMIT_NPROC bounds a user namespace by itself. Before, it counted all processes of the user, in whatever
 * namespace: a sandbox would have been refused for what others run. */
export function countsByNamespace(kernel: string = release()): boolean {
  const [major = 0, minor = 0] = kernel.split(".").map(Number);
  return major > 5 || (major === 5 && minor >= 14);
}

/** What a sandbox can have at most here, whatever its limits say. */
export interface Machine {
  cores: number;
  memoryBytes: number;
}

const machineHere = (): Machine => ({ cores: availableParallelism(), memoryBytes: memoryHere() });

const LIMITS: Record<Controller, { name: string; asked(spec: SandboxSpec): boolean }> = {
  cpu: { name: "cpu", asked: (spec) => spec.cpu !== undefined },
  memory: { name: "memory", asked: (spec) => spec.memory_bytes !== undefined },
  pids: { name: "processes", asked: (spec) => spec.pids !== undefined },
};

const which = (asked: boolean): string =>
  asked ? "the limit that was asked for" : "the limit that sandboxes have by default";

export class Limits {
  /** Which limits hold here. */
  readonly enforced: ReadonlySet<Controller>;
  readonly #defaults: DefaultLimits;
  readonly #byRlimit: boolean;
  readonly #machine: Machine;
  readonly #diskNeeds: string | undefined;

  /** `byGroups`: what cgroups can limit here. */
  constructor(
    byGroups: ReadonlySet<Controller>,
    root: boolean,
    defaults: Partial<DefaultLimits> = {},
    machine: Machine = machineHere(),
  ) {
    this.#machine = machine;
    this.#diskNeeds = diskNeeds(root);
    this.#defaults = { ...defaultsOf(), ...defaults };
    this.#byRlimit = !byGroups.has("pids") && !root && countsByNamespace();
    this.enforced = this.#byRlimit ? new Set([...byGroups, "pids"]) : byGroups;
  }

  /** The spec with the limits that it leaves out. */
  of(spec: SandboxSpec): SandboxSpec {
    const { memoryBytes, pids, diskBytes } = this.#defaults;
    const disk = spec.disk_bytes ?? diskBytes;
    return {
      ...spec,
      memory_bytes: spec.memory_bytes ?? memoryBytes,
      pids: spec.pids ?? pids,
      ...(disk !== undefined && { disk_bytes: disk }),
    };
  }

  /** Of /dev/shm: what lies there counts as memory, and who wrote it cannot be ended for it. */
  shmBytes(limited: SandboxSpec): number {
    return Math.ceil((limited.memory_bytes ?? this.#defaults.memoryBytes) / 2);
  }

  /** Processes and threads by RLIMIT_NPROC; undefined where a cgroup counts them, or nothing does. */
  nproc(limited: SandboxSpec): number | undefined {
    return this.#byRlimit ? limited.pids : undefined;
  }

  /** Whether the writable layer's limit holds here. */
  get disk(): boolean {
    return this.#diskNeeds === undefined;
  }

  /** Of the writable layer; undefined where there is none, or it cannot be held. */
  diskBytes(limited: SandboxSpec): number | undefined {
    return this.disk ? limited.disk_bytes : undefined;
  }

  /** What of the limits is not held, and what was asked for that the machine does not have, for whom the sandbox is
   * granted to. `spec`: as it was asked for. */
  warnings(spec: SandboxSpec): string[] {
    return [...this.#notHeld(spec), ...this.#beyond(spec)];
  }

  /** A limit above what there is limits nothing; it is no promise of more. */
  #beyond({ cpu, memory_bytes }: SandboxSpec): string[] {
    const { cores, memoryBytes } = this.#machine;
    const words: string[] = [];
    if (cpu !== undefined && cpu > cores)
      words.push(`cpu: ${cpu} were asked for, and all that this machine has are ${cores}`);
    if (memory_bytes !== undefined && memory_bytes > memoryBytes)
      words.push(
        `memory: ${memory_bytes} bytes were asked for, and all that this machine has are ${memoryBytes}`,
      );
    return words;
  }

  #notHeld(spec: SandboxSpec): string[] {
    const asked = spec.disk_bytes !== undefined;
    const disk =
      this.disk || this.of(spec).disk_bytes === undefined
        ? []
        : [`disk: ${which(asked)} is not held, since it needs ${this.#diskNeeds} (see doctor)`];
    const groups = CONTROLLERS.flatMap((controller) => {
      const { name, asked } = LIMITS[controller];
      // Without a wish there is no limit of cpu anywhere.
      if (this.enforced.has(controller) || (controller === "cpu" && !asked(spec))) return [];
      return [`${name}: ${which(asked(spec))} is not held, since no cgroup can be written here (see doctor)`];
    });
    return [...groups, ...disk];
  }
}
