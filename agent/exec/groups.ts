// Commands' own cgroups (version 2): a command that is born in one cannot leave it, nor can what descends from it, and one
// word to the kernel ends them all. Where the daemon may make none, ends are as tree.ts finds them.
import {
  accessSync,
  closeSync,
  constants,
  mkdirSync,
  openSync,
  readSync,
  rmdirSync,
  statfsSync,
  writeFileSync,
} from "node:fs";
import { errnoOf } from "../../broker/contract/index.ts";
import { ownFolder } from "../info/cgroup.ts";
import { readText } from "../process/read-text.ts";

/** By which whoever starts the daemon hands over the descriptor of a folder of version 2 in which it may make groups. No
 * command has a way to that folder, then. */
export const GROUPS_FD = "SANDMESH_COMMANDS_CGROUP";

/** statfs(2)'s number of version 2. */
const CGROUP2 = 0x63677270;
/** Groups at once, those among them that background work keeps. Further commands have none. */
const MAX_GROUPS = 512;
/** Empty ones that are kept for the next commands: making and removing one costs more than being born in it. */
const MAX_FREE = 32;
/** Of those that background work has kept, how many are looked at where a free one is needed. */
const LOOKS = 8;

interface Group {
  path: string;
  /** Descriptor of its folder, and of the file that tells whether it is empty (a look costs 2 µs). */
  folder: number;
  events: number;
  member: Membership | undefined;
  /** Ended by cgroup.kill: it is not to be used again (native/launch.c, may_group). */
  killed: boolean;
}

/** A command's place in a group, until it has ended and nothing of it lives on. */
export class Membership {
  readonly #groups: Groups;
  #group: Group | undefined;

  constructor(groups: Groups, group: Group) {
    this.#groups = groups;
    this.#group = group;
  }

  /** For the engine's request. */
  get folder(): number {
    return this.#group?.folder ?? -1;
  }

  /** Whether anything of the command lives. */
  get populated(): boolean {
    return this.#group !== undefined && isPopulated(this.#group);
  }

  /** The living processes; undefined where the command may have been begun outside. */
  members(): number[] | undefined {
    if (!this.#groups.inForce) return undefined;
    return this.#group === undefined ? [] : processesIn(this.#group.path);
  }

  /** SIGKILL to all, and to what they are just forking. */
  kill(): void {
    if (this.#group === undefined) return;
    this.#group.killed = true;
    try {
      writeFileSync(`${this.#group.path}/cgroup.kill`, "1");
    } catch {
      // tree.ts goes on by pid.
    }
  }

  /** The command is over. What it left in the background stays in the group, and the group its. */
  release(): void {
    if (this.#group !== undefined) this.#groups.giveBack(this.#group);
  }

  /** The group is another's from now on. */
  leave(): void {
    this.#group = undefined;
  }
}

const processesIn = (folder: string): number[] =>
  (readText(`${folder}/cgroup.procs`) ?? "")
    .split("\n")
    .map(Number)
    .filter((pid) => pid > 0);

const events = Buffer.alloc(64);
function isPopulated({ events: file }: Group): boolean {
  try {
    return events.toString("latin1", 0, readSync(file, events, 0, events.length, 0)).includes("populated 1");
  } catch {
    return false;
  }
}

/** Whether the kernel lets commands be born in that folder's group; without one, whether it has let all so far. */
type MayGroup = (folder?: number) => boolean;

export class Groups {
  readonly #folder: string;
  readonly #mayGroup: MayGroup;
  readonly #free: Group[] = [];
  /** Given back with something alive in them, oldest first. */
  readonly #kept: Group[] = [];
  #count = 0;
  #named = 0;

  private constructor(folder: string, mayGroup: MayGroup) {
    this.#folder = folder;
    this.#mayGroup = mayGroup;
  }

  /** Tries it; undefined where it cannot be. `given`: the environment's word (GROUPS_FD). Without it, a daemon that is PID 1,
   * and so owns its container, looks whether it may write to its own group. */
  static open(given: string | undefined, mayGroup: MayGroup): Groups | undefined {
    const folder = given === undefined ? ownGroups() : handedOver(given);
    return folder === undefined ? undefined : Groups.in(folder, mayGroup);
  }

  static in(folder: string, mayGroup: MayGroup): Groups | undefined {
    const groups = new Groups(folder, mayGroup);
    try {
      const first = groups.#make();
      groups.#free.push(first);
      accessSync(`${first.path}/cgroup.kill`, constants.W_OK); // Linux 5.14
      if (mayGroup(first.folder)) return groups;
    } catch {
      // Not ours to make.
    }
    groups.close();
    return undefined;
  }

  /** Whether it still works. */
  get inForce(): boolean {
    return this.#mayGroup();
  }

  /** An empty group for a command; undefined where there is none to be had. */
  take(): Membership | undefined {
    if (!this.inForce) return undefined;
    const group = this.#free.pop() ?? this.#emptied() ?? this.#another();
    if (group === undefined) return undefined;
    group.member = new Membership(this, group);
    return group.member;
  }

  giveBack(group: Group): void {
    if (isPopulated(group)) {
      this.#kept.push(group);
      return;
    }
    group.member?.leave();
    group.member = undefined;
    if (this.#free.length < MAX_FREE && !group.killed) this.#free.push(group);
    else this.#remove(group);
  }

  /** Removes the empty ones. */
  close(): void {
    for (const group of this.#free.splice(0)) this.#remove(group);
  }

  #emptied(): Group | undefined {
    for (let look = 0; look < LOOKS; look++) {
      const group = this.#kept.shift();
      if (group === undefined) return undefined;
      // To the end of those that are kept, or to the free ones.
      this.giveBack(group);
      const free = this.#free.pop();
      if (free !== undefined) return free;
    }
    return undefined;
  }

  #another(): Group | undefined {
    if (this.#count >= MAX_GROUPS) return undefined;
    try {
      return this.#make();
    } catch {
      return undefined;
    }
  }

  #make(): Group {
    const path = this.#newFolder();
    let folder = -1;
    try {
      folder = openSync(path, constants.O_RDONLY | constants.O_DIRECTORY);
      const group = {
        path,
        folder,
        events: openSync(`${path}/cgroup.events`, "r"),
        member: undefined,
        killed: false,
      };
      this.#count++;
      return group;
    } catch (error) {
      if (folder >= 0) closeSync(folder);
      rmdirSync(path);
      throw error;
    }
  }

  #newFolder(): string {
    for (;;) {
      const path = `${this.#folder}/${++this.#named}`;
      try {
        mkdirSync(path);
        return path;
      } catch (error) {
        // A daemon of before has left it.
        if (errnoOf(error) !== "EEXIST" || this.#named > MAX_GROUPS) throw error;
      }
    }
  }

  #remove(group: Group): void {
    this.#count--;
    closeSync(group.folder);
    closeSync(group.events);
    try {
      rmdirSync(group.path);
    } catch {
      // Someone has made groups in it: it goes with the sandbox.
    }
  }
}

function handedOver(given: string): string | undefined {
  if (!/^\d+$/.test(given)) return undefined;
  const path = `/proc/self/fd/${given}`;
  try {
    return Number(statfsSync(path).type) === CGROUP2 ? path : undefined;
  } catch {
    return undefined;
  }
}

function ownGroups(): string | undefined {
  if (process.pid !== 1) return undefined;
  const own = ownFolder(readText);
  if (own === undefined) return undefined;
  const folder = `${own}/sandmesh-commands`;
  // A path that only looks like our own would take commands out of the container's limits.
  if (!processesIn(own).includes(1)) return undefined;
  try {
    mkdirSync(folder);
  } catch (error) {
    if (errnoOf(error) !== "EEXIST") return undefined;
  }
  return folder;
}
