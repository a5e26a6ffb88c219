// What the kernel says about processes: alive, ended, and by which mesh they were started.
import { readFileSync, readlinkSync } from "node:fs";
import { readdir } from "node:fs/promises";
import { ProviderError } from "../../../broker/contract/index.ts";
import type { Identity } from "./layout.ts";

/** Whether exactly that process still runs. A zombie does not. */
export function isAlive(identity: Identity | undefined): identity is Identity {
  return identity !== undefined && startOf(identity.pid) === identity.start;
}

/** When a process began, in clock ticks after boot; undefined where it is gone or a zombie. */
export function startOf(pid: number): number | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "latin1");
    // The name may hold spaces and brackets: fields are counted from its last one (proc(5): 3 state, 22 starttime).
    const [state, ...fields] = text.slice(text.lastIndexOf(")") + 2).split(" ");
    return state === "Z" || state === "X" ? undefined : Number(fields[18]);
  } catch {
    return undefined;
  }
}

/** SIGKILL, only if it is still that process. */
export function kill(identity: Identity | undefined): void {
  if (!isAlive(identity)) return;
  try {
    process.kill(identity.pid, "SIGKILL");
  } catch {
    // It ended in between.
  }
}

export interface MarkedProcesses {
  pids: number[];
  /** Mounts that carry the mark, over all mount namespaces. */
  mounts: number;
  /** Of the sandboxes that they are of, where the mark is the mesh's. */
  sandboxes: Set<string>;
}

/** All processes of a mesh by kernel state alone: those in a mount namespace with a mount marked `mark`, and those
 * whose command line names `stateDir`, where one is given (supervisors, relay). One reading of /proc; 1 ms for 100 processes. */
export async function findMarked(mark: string, stateDir?: string): Promise<MarkedProcesses> {
  const marked = new Map<string, number>();
  const pids: number[] = [];
  const sandboxes = new Set<string>();
  let mounts = 0;
  for (const name of await readdir("/proc")) {
    const pid = Number(name);
    if (!Number.isInteger(pid) || pid === process.pid) continue;
    try {
      const ns = readlinkSync(`/proc/${pid}/ns/mnt`);
      let count = marked.get(ns);
      if (count === undefined) {
        const below = markedBelow(readFileSync(`/proc/${pid}/mountinfo`, "utf8"), mark);
        for (const sandbox of below) if (sandbox !== "") sandboxes.add(sandbox);
        count = below.length;
        marked.set(ns, count);
        mounts += count;
      }
      const args = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
      const own =
        stateDir !== undefined &&
        args.includes(stateDir) &&
        args.some((a) => /\/(launcher\.py|relay-process\.ts)$/.test(a));
      if (count > 0 || own) pids.push(pid);
    } catch {
      // Ended while we looked, or another user's.
    }
  }
  return { pids, mounts, sandboxes };
}

/** Of each mount with that mark, what of its source comes after it. */
function markedBelow(mountinfo: string, mark: string): string[] {
  return mountinfo.split("\n").flatMap((line) => {
    const source = line.split(" - ")[1]?.split(" ")[1];
    if (source === mark) return [""];
    return source?.startsWith(`${mark}/`) ? [source.slice(mark.length + 1)] : [];
  });
}

/** Kills processes as `find` names them until it names none. Throws ProviderError after `withinMs`. */
export async function killAll(
  what: string,
  find: () => number[] | Promise<number[]>,
  withinMs: number,
): Promise<void> {
  const until = Date.now() + withinMs;
  for (;;) {
    const left = await find();
    if (left.length === 0) return;
    if (Date.now() > until) throw new ProviderError(`${what} do not end: ${left.join(", ")}`);
    for (const pid of left) kill({ pid, start: startOf(pid) ?? -1 });
    await Bun.sleep(2);
  }
}

/** The name that launcher.py gives itself, and its supervisors lose with their first step. */
export const LAUNCHER_NAME = "sandmesh-launch";
const SERVICE_GONE_MS = 5_000;

/** Ends the launchers of a state folder, whoever started them, and resolves when none is left. Throws ProviderError. */
export function endLaunchers(stateDir: string): Promise<void> {
  const launchers = async () =>
    (await findMarked("/no mark/", stateDir)).pids.filter((pid) => nameOf(pid) === LAUNCHER_NAME);
  return killAll("launchers", launchers, SERVICE_GONE_MS);
}

/** The relays of a state folder that run now. */
export const relaysOf = async (stateDir: string): Promise<number[]> =>
  (await findMarked("/no mark/", stateDir)).pids.filter(isRelay);

/** Ends the relays of a state folder that run now, also those that stand still; not one that is started meanwhile. Throws
 * ProviderError. */
export async function endRelays(stateDir: string): Promise<void> {
  const relays = (await relaysOf(stateDir)).map((pid) => ({ pid, start: startOf(pid) ?? -1 }));
  await killAll("relays", () => relays.filter(isAlive).map(({ pid }) => pid), SERVICE_GONE_MS);
}

/** By its arguments: it has no name of its own. */
export function isRelay(pid: number): boolean {
  try {
    const args = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
    return args.some((arg) => arg.endsWith("/relay-process.ts"));
  } catch {
    return false;
  }
}

/** A process's name as it gave it to itself; empty where it is gone. */
export function nameOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/comm`, "utf8").trim();
  } catch {
    return "";
  }
}
