// Where a one-machine mesh keeps its state, and how to tell whether one is up.
import { chmodSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import * as v from "valibot";

/** `SANDMESH_HOME`, or `$XDG_STATE_HOME/sandmesh`, or `~/.local/state/sandmesh`. */
export function sandmeshHome(env: NodeJS.ProcessEnv = process.env): string {
  const base = env.XDG_STATE_HOME || join(homedir(), ".local", "state");
  return env.SANDMESH_HOME || join(base, "sandmesh");
}

/** The files of a home. Secrets are readable by the owner alone. */
export function homePaths(home: string) {
  return {
    home,
    /** What clients read: where the mesh is, and as whom. There only while it is up. */
    mesh: join(home, "mesh.json"),
    credentials: join(home, "credentials.creds"),
    observer: join(home, "observer.creds"),
    supervisor: join(home, "supervisor.json"),
    nats: join(home, "nats"),
    pool: join(home, "pool"),
    poolConfig: join(home, "pool", "config.json"),
    poolCredentials: join(home, "pool", "pool.creds"),
    poolKeys: join(home, "pool", "keys.json"),
    local: join(home, "local"),
    logs: join(home, "log"),
  } as const;
}
export type HomePaths = ReturnType<typeof homePaths>;

export function makeHome(home: string): HomePaths {
  const paths = homePaths(home);
  for (const folder of [paths.home, paths.nats, paths.pool, paths.local, paths.logs]) {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
  }
  chmodSync(paths.home, 0o700);
  return paths;
}

/** Writes a file whole or not at all, readable by the owner alone. */
export function writePrivate(path: string, content: string): void {
  const temporary = `${path}.${process.pid}.tmp`;
  writeFileSync(temporary, content, { mode: 0o600 });
  renameSync(temporary, path);
}

/** A process named so that another one with the same pid, later, is not taken for it. */
const ProcessName = v.object({ pid: v.pipe(v.number(), v.integer(), v.minValue(2)), started: v.string() });
export type ProcessName = v.InferOutput<typeof ProcessName>;

/** When a process began, in clock ticks since boot (field 22 of /proc/PID/stat); undefined where it is gone or a
 * zombie. */
export function startOf(pid: number): string | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    // The program's name may hold anything, also ") "; fields are counted behind its last bracket.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return fields[0] === "Z" || fields[0] === "X" ? undefined : fields[19];
  } catch {
    return undefined;
  }
}

export function nameProcess(pid: number): ProcessName {
  return { pid, started: startOf(pid) ?? "gone" };
}

export const isAlive = (name: ProcessName): boolean => startOf(name.pid) === name.started;

export function readProcess(path: string): ProcessName | undefined {
  try {
    return v.parse(ProcessName, JSON.parse(readFileSync(path, "utf8")));
  } catch {
    return undefined;
  }
}

/** The supervisor that runs in this home, if one does. A file left by a dead one is removed. */
export function runningSupervisor(paths: HomePaths): ProcessName | undefined {
  const name = readProcess(paths.supervisor);
  if (name !== undefined && isAlive(name)) return name;
  rmSync(paths.supervisor, { force: true });
  return undefined;
}
