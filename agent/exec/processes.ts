// What runs in the sandbox, by /proc. One look serves all who ask for one at the same time: when hundreds of commands end at
// once, each for itself would read all of /proc, several times, and the daemon would do nothing else for many seconds.
import { readdirSync, readFileSync } from "node:fs";
import { errnoOf } from "../../broker/contract/index.ts";
import { MARKER } from "../process/environment.ts";

export interface Process {
  pid: number;
  parent: number;
  session: number;
  /** Of the commands whose marker its environment has (its start's, as execve got it): one, as a rule. */
  ids: readonly string[];
}

/** Undefined where the process has ended meanwhile, or is not ours to read. */
function read(pid: string, name: string): string | undefined {
  try {
    return readFileSync(`/proc/${pid}/${name}`, "latin1");
  } catch (error) {
    // Without a descriptor left it would look as if nothing lived.
    if (errnoOf(error) === "EMFILE" || errnoOf(error) === "ENFILE") throw error;
    return undefined;
  }
}

const VARIABLE = `${MARKER}=`;

function idsIn(environment: string): string[] {
  const ids: string[] = [];
  for (let at = environment.indexOf(VARIABLE); at >= 0; at = environment.indexOf(VARIABLE, at + 1)) {
    if (at > 0 && environment[at - 1] !== "\0") continue;
    const end = environment.indexOf("\0", at);
    ids.push(environment.slice(at + VARIABLE.length, end < 0 ? undefined : end));
  }
  return ids;
}

/** All living processes (zombies have ended). */
export function readProcesses(): Process[] {
  const processes: Process[] = [];
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const stat = read(name, "stat");
    if (stat === undefined) continue;
    // The name in parentheses may itself contain anything, also ")".
    const [state, parent, , session] = stat.slice(stat.lastIndexOf(")") + 2).split(" ", 4);
    if (state === "Z" || state === "X") continue;
    const ids = idsIn(read(name, "environ") ?? "");
    processes.push({ pid: Number(name), parent: Number(parent), session: Number(session), ids });
  }
  return processes;
}

function add<Key>(lists: Map<Key, number[]>, key: Key, pid: number): void {
  const list = lists.get(key);
  if (list === undefined) lists.set(key, [pid]);
  else list.push(pid);
}

/** What runs at one moment: pure, so that it can be tested without processes. */
export class Processes {
  readonly #alive = new Set<number>();
  readonly #children = new Map<number, number[]>();
  readonly #sessions = new Map<number, number[]>();
  readonly #marked = new Map<string, number[]>();

  constructor(all: readonly Process[]) {
    for (const { pid, parent, session, ids } of all) {
      this.#alive.add(pid);
      add(this.#children, parent, pid);
      add(this.#sessions, session, pid);
      for (const id of ids) add(this.#marked, id, pid);
    }
  }

  /** Who belongs to the command `id` whose leader is or was `leader`, which comes first: by session, by marker, and all that
   * descends from those, but for `spared`. */
  tree(id: string, leader: number, spared = process.pid): number[] {
    const first = this.#alive.has(leader) ? [leader] : [];
    return this.#with(
      [...first, ...(this.#sessions.get(leader) ?? []), ...(this.#marked.get(id) ?? [])],
      spared,
    );
  }

  /** All that descends from it. */
  below(pid: number): number[] {
    return this.#with(this.#children.get(pid) ?? [], pid);
  }

  /** Parents before their children: one whose child is ended first would go on to its next command. */
  #with(first: readonly number[], spared: number): number[] {
    const members = new Set<number>();
    for (const pid of first) if (pid !== spared) members.add(pid);
    // A set's own loop goes on to what is added meanwhile.
    for (const pid of members)
      for (const child of this.#children.get(pid) ?? []) if (child !== spared) members.add(child);
    return [...members];
  }
}

/** Where the machine has no descriptor left to look with it is tried again, so often: what ends meanwhile leaves some. */
const AGAIN_MS = 20;
const MAX_TRIES = 50;

export class Looks {
  readonly #take: () => Processes;
  #waiting: ((processes: Processes) => void)[] = [];

  constructor(take = () => new Processes(readProcesses())) {
    this.#take = take;
  }

  /** What runs at a moment after this call, once all that came with it has been seen to. */
  next(): Promise<Processes> {
    return new Promise((resolve) => {
      if (this.#waiting.push(resolve) === 1) setImmediate(() => this.#look(1));
    });
  }

  #look(tries: number): void {
    let processes = new Processes([]);
    try {
      processes = this.#take();
    } catch {
      if (tries < MAX_TRIES) {
        setTimeout(() => this.#look(tries + 1), AGAIN_MS);
        return;
      }
    }
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve(processes);
  }
}

/** Of all in this process. */
export const looks = new Looks();
