// A command's whole process tree: found by its cgroup, or else by parent chain, session and environment marker, and ended.
// What leaves the session, is orphaned AND has scrubbed the marker escapes, where no cgroup holds it (groups.ts).
import type { EndedTree } from "./outcome.ts";
import { looks } from "./processes.ts";
import { SIGCONT, SIGKILL, SIGSTOP, SIGTERM, send } from "./signals.ts";

/** What holds a command's processes; undefined where it may have been begun outside. */
export interface Held {
  members(): number[] | undefined;
}

/** The living processes of the command `id` whose leader is or was `leader`. Nothing leaves a group, so that whoever has one
 * is not looked for in all of /proc. */
export async function findTree(id: string, leader: number, group?: Held): Promise<number[]> {
  return group?.members() ?? (await looks.next()).tree(id, leader);
}

type Find = () => Promise<number[]>;

export interface TreeEndOptions {
  /** The members that live, by now. */
  find: Find;
  /** Calls back when the process has ended; false where it has already. */
  watch(pid: number, gone: () => void): boolean;
  /** SIGKILL to all at once, where a cgroup holds them. */
  killAll?: (() => void) | undefined;
  graceMs: number;
}

/** After SIGKILL: how long to wait for processes that cannot end (a hung disk) before answering all the same. */
const LAST_WAIT_MS = 1000;
/** Look-arounds after SIGKILL for what was forked meanwhile, before waiting again. */
const MAX_ROUNDS = 256;
/** Of them, how many kill at once. (A bomb that forks whenever one of it is killed outlives all 256, each of which reads /proc
 * for all of its processes, and the daemon does little else meanwhile.) */
const KILL_ROUNDS = 2;

/** Stops these and all that turns up meanwhile; answers all of them. */
async function stopAll(first: readonly number[], find: Find): Promise<Set<number>> {
  const stopped = new Set<number>();
  let fresh = first;
  for (let round = 0; round < MAX_ROUNDS && fresh.length > 0; round++) {
    for (const pid of fresh) {
      send(pid, SIGSTOP);
      stopped.add(pid);
    }
    fresh = (await find()).filter((pid) => !stopped.has(pid));
  }
  return stopped;
}

/** SIGTERM to those that have not had it, also to those that were being forked while the others were asked. Answers who lives. */
async function ask(find: Find, signalled: Set<number>): Promise<number[]> {
  const alive = await find();
  for (const pid of alive) {
    if (signalled.has(pid)) continue;
    signalled.add(pid);
    send(pid, SIGTERM);
    send(pid, SIGCONT); // a stopped one takes SIGTERM only when it goes on
  }
  return alive;
}

/** SIGKILL until nothing new turns up. Answers who lives. */
async function kill({ find, killAll }: TreeEndOptions, signalled: Set<number>): Promise<number[]> {
  const killed = new Set<number>();
  if (killAll !== undefined) {
    for (const pid of await find()) signalled.add(pid);
    killAll();
  }
  for (let round = 0; round < MAX_ROUNDS; round++) {
    const alive = await find();
    const fresh = alive.filter((pid) => !killed.has(pid));
    if (fresh.length === 0) return alive;
    // Each that is killed makes room for another: what forks as fast is stopped first, all of it.
    const doomed = round < KILL_ROUNDS ? fresh : await stopAll(fresh, find);
    for (const pid of doomed) {
      send(pid, SIGKILL);
      killed.add(pid);
      signalled.add(pid);
    }
  }
  return await find();
}

/** Another round, which answers who lives, whenever one of those has ended; false where some live on after that time. Watches,
 * does not poll. */
async function untilGone(
  round: () => Promise<number[]>,
  watch: TreeEndOptions["watch"],
  withinMs: number,
): Promise<boolean> {
  let late = false;
  let goOn = (): void => {};
  const timer = setTimeout(() => {
    late = true;
    goOn();
  }, withinMs);
  try {
    for (;;) {
      const alive = await round();
      const changed = new Promise<void>((resolve) => {
        goOn = resolve;
      });
      if (!alive.some((pid) => watch(pid, () => goOn()))) return true;
      if (!late) await changed;
      if (late) return false;
    }
  } finally {
    clearTimeout(timer);
  }
}

/** Ends a tree: SIGTERM to all, after the grace SIGKILL until nothing new turns up. */
export async function endTree(options: TreeEndOptions): Promise<EndedTree> {
  const { find, watch, graceMs } = options;
  const signalled = new Set<number>();
  const hard = graceMs === 0 || !(await untilGone(() => ask(find, signalled), watch, graceMs));
  if (hard) await untilGone(() => kill(options, signalled), watch, LAST_WAIT_MS);
  return { killed: signalled.size, hard };
}
