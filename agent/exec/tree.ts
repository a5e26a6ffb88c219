// A command's whole process tree: found by parent chain, session and environment marker in /proc, and ended.
// What leaves the session, is orphaned AND has scrubbed the marker escapes, where no cgroup holds it (groups.ts).
import { readdirSync, readFileSync } from "node:fs";
import { MARKER } from "../process/environment.ts";
import { SIGCONT, SIGKILL, SIGSTOP, SIGTERM } from "./signals.ts";

export interface Process {
  pid: number;
  parent: number;
  session: number;
}

/** All living processes (zombies have ended). */
export function readProcesses(): Process[] {
  const processes: Process[] = [];
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const stat = readFileSync(`/proc/${name}/stat`, "latin1");
      // The name in parentheses may itself contain anything, also ")".
      const [state, parent, , session] = stat.slice(stat.lastIndexOf(")") + 2).split(" ", 4);
      if (state === "Z" || state === "X") continue;
      processes.push({ pid: Number(name), parent: Number(parent), session: Number(session) });
    } catch {
      // It ended meanwhile.
    }
  }
  return processes;
}

/** Whether a process' environment holds that variable with that value (its start's, as execve got it). */
function hasMarker(pid: number, marker: Buffer): boolean {
  try {
    const environ = readFileSync(`/proc/${pid}/environ`);
    for (let at = environ.indexOf(marker); at >= 0; at = environ.indexOf(marker, at + 1)) {
      const end = environ[at + marker.length];
      if ((at === 0 || environ[at - 1] === 0) && (end === 0 || end === undefined)) return true;
    }
  } catch {
    // Ended, or not ours to read.
  }
  return false;
}

/** Which of `processes` belong to the command: pure, so that it can be tested without processes. */
export function treeOf(
  processes: readonly Process[],
  leader: number,
  marked: (pid: number) => boolean,
  spared: number,
): number[] {
  const members = new Set<number>();
  const children = new Map<number, number[]>();
  for (const { pid, parent } of processes) {
    const siblings = children.get(parent);
    if (siblings === undefined) children.set(parent, [pid]);
    else siblings.push(pid);
  }
  const add = (pid: number): void => {
    const queue = [pid];
    for (let next = queue.pop(); next !== undefined; next = queue.pop()) {
      if (next === spared || members.has(next)) continue;
      members.add(next);
      queue.push(...(children.get(next) ?? []));
    }
  };
  for (const { pid, session } of processes)
    if (!members.has(pid) && (pid === leader || session === leader || marked(pid))) add(pid);
  return [...members];
}

/** What holds a command's processes; undefined where it may have been begun outside. */
export interface Held {
  members(): number[] | undefined;
}

/** The living processes of the command `id` whose leader is or was `leader`. Nothing leaves a group, so that whoever has one
 * is not looked for in all of /proc, which for each of hundreds that end at once would keep the daemon from all else. */
export function findTree(id: string, leader: number, group?: Held): number[] {
  const held = group?.members();
  if (held !== undefined) return held;
  const marker = Buffer.from(`${MARKER}=${id}`);
  return treeOf(readProcesses(), leader, (pid) => hasMarker(pid, marker), process.pid);
}

function send(pid: number, signal: number): void {
  try {
    process.kill(pid, signal);
  } catch {
    // Ended meanwhile, or not ours to signal.
  }
}

export interface TreeEndOptions {
  /** The members that live, by now. */
  find(): number[];
  /** Calls back when the process has ended; false where it has already. */
  watch(pid: number, gone: () => void): boolean;
  /** SIGKILL to all at once, where a cgroup holds them. */
  killAll?: (() => void) | undefined;
  graceMs: number;
  /** Once: how many processes were signalled, and whether SIGKILL was needed. */
  ended(killed: number, hard: boolean): void;
}

/** After SIGKILL: how long to wait for processes that cannot end (a hung disk) before answering all the same. */
const LAST_WAIT_MS = 1000;
/** Look-arounds after SIGKILL for what was forked meanwhile, before waiting again. */
const MAX_ROUNDS = 256;
/** Of them, how many kill at once. (A bomb that forks whenever one of it is killed outlives all 256, each of which reads /proc
 * for all of its processes, and the daemon does nothing else meanwhile.) */
const KILL_ROUNDS = 2;

/** Stops these and all that turns up meanwhile; answers all of them. */
function stopAll(first: readonly number[], find: () => number[]): Set<number> {
  const stopped = new Set<number>();
  let fresh = first;
  for (let round = 0; round < MAX_ROUNDS && fresh.length > 0; round++) {
    for (const pid of fresh) {
      send(pid, SIGSTOP);
      stopped.add(pid);
    }
    fresh = find().filter((pid) => !stopped.has(pid));
  }
  return stopped;
}

/** Ends a tree: SIGTERM to all, after the grace SIGKILL until nothing new turns up. Watches, does not poll. */
export function endTree(options: TreeEndOptions): void {
  const signalled = new Set<number>();
  let hard = options.graceMs === 0;
  let done = false;
  const finish = (): void => {
    if (done) return;
    done = true;
    clearTimeout(timer);
    options.ended(signalled.size, hard);
  };
  /** Also those that were being forked while the others were asked. */
  const ask = (): number[] => {
    const alive = options.find();
    for (const pid of alive) {
      if (signalled.has(pid)) continue;
      signalled.add(pid);
      send(pid, SIGTERM);
      send(pid, SIGCONT); // a stopped one takes SIGTERM only when it goes on
    }
    return alive;
  };
  const kill = (): number[] => {
    const killed = new Set<number>();
    if (options.killAll !== undefined) {
      for (const pid of options.find()) signalled.add(pid);
      options.killAll();
    }
    for (let round = 0; round < MAX_ROUNDS; round++) {
      const alive = options.find();
      const fresh = alive.filter((pid) => !killed.has(pid));
      if (fresh.length === 0) return alive;
      // Each that is killed makes room for another: what forks as fast is stopped first, all of it.
      const doomed = round < KILL_ROUNDS ? fresh : stopAll(fresh, options.find);
      for (const pid of doomed) {
        send(pid, SIGKILL);
        killed.add(pid);
        signalled.add(pid);
      }
    }
    return options.find();
  };
  const step = (): void => {
    if (done) return;
    for (const pid of hard ? kill() : ask()) if (options.watch(pid, step)) return;
    finish();
  };
  const onGrace = (): void => {
    hard = true;
    timer = setTimeout(finish, LAST_WAIT_MS);
    step();
  };
  let timer = setTimeout(hard ? finish : onGrace, hard ? LAST_WAIT_MS : options.graceMs);
  step();
}
