// Where a one-machine mesh keeps its state, and how to tell whether one is up.

import { dlopen, FFIType } from "bun:ffi";
import {
  accessSync,
  closeSync,
  constants,
  linkSync,
  mkdirSync,
  openSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import * as v from "valibot";
import { ConflictError, errnoOf, FileError } from "../../broker/contract/index.ts";
import { startOf } from "../../pool/provider/local/processes.ts";
import { MESH_FILE } from "../../sdk/typescript/settings.ts";

/** The files of a home. Secrets are readable by the owner alone. */
export function homePaths(home: string) {
  return {
    home,
    /** What clients read: where the mesh is, and as whom. There only while it is up. */
    mesh: join(home, MESH_FILE),
    credentials: join(home, "credentials.creds"),
    observer: join(home, "observer.creds"),
    operator: join(home, "operator.creds"),
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

/** What is there only while the mesh is up: its credentials, and at last whose home it is. */
export const endsWithMesh = ({ mesh, credentials, observer, operator, supervisor }: HomePaths): string[] => [
  mesh,
  credentials,
  observer,
  operator,
  supervisor,
];

/** A folder that is there keeps its mode: it may be everybody's, such as /tmp. Throws FileError where it cannot be had. */
export function makeHome(home: string): HomePaths {
  const paths = homePaths(home);
  try {
    for (const folder of [paths.home, paths.nats, paths.pool, paths.local, paths.logs]) {
      mkdirSync(folder, { recursive: true, mode: 0o700 });
      // What is there already may be on a disk that is read-only.
      accessSync(folder, constants.W_OK);
    }
  } catch (error) {
    throw fileFault(
      error,
      (why) => `${home} cannot be the mesh's folder (${why}); SANDMESH_HOME names another`,
    );
  }
  return paths;
}

/** The system's error as a FileError; another as it was. */
function fileFault(error: unknown, message: (why: string) => string): unknown {
  const reason = errnoOf(error);
  if (reason === undefined || !(error instanceof Error)) return error;
  return new FileError(message(error.message), { reason, cause: error });
}

/** Removes what is the mesh's, with all below it, if it is there. Throws FileError. */
export function removeOwn(path: string): void {
  try {
    rmSync(path, { recursive: true, force: true });
  } catch (error) {
    throw fileFault(error, (why) => `${path} cannot be removed: ${why}`);
  }
}

/** A process named so that another one with the same pid, later, is not taken for it: with its start in clock ticks
 * after boot. */
const ProcessName = v.object({ pid: v.pipe(v.number(), v.integer(), v.minValue(2)), started: v.string() });
export type ProcessName = v.InferOutput<typeof ProcessName>;

export function nameProcess(pid: number): ProcessName {
  return { pid, started: String(startOf(pid) ?? "gone") };
}

export function isAlive({ pid, started }: ProcessName): boolean {
  const start = startOf(pid);
  return start !== undefined && String(start) === started;
}

/** Which process has which folder as its home: a copy of a home says so too, and is another folder. One that is moved
 * stays the same. */
const Claim = v.object({ ...ProcessName.entries, home: v.string() });
type Claim = v.InferOutput<typeof Claim>;

function identityOf(folder: string): string {
  const found = statSync(folder, { bigint: true, throwIfNoEntry: false });
  return found === undefined ? "gone" : `${found.dev}:${found.ino}`;
}

const ownClaim = (paths: HomePaths): Claim => ({ ...nameProcess(process.pid), home: identityOf(paths.home) });

/** What the supervisor's file says; undefined where there is none, or it is damaged. */
export function readClaim(paths: HomePaths): Claim | undefined {
  try {
    return v.parse(Claim, JSON.parse(readFileSync(paths.supervisor, "utf8")));
  } catch {
    return undefined;
  }
}

/** The supervisor that runs in this home, if one does. Throws ConflictError where this is a copy of the home of a mesh
 * that is up: what the copy's files name is the other's. */
export function runningSupervisor(paths: HomePaths): ProcessName | undefined {
  const claim = readClaim(paths);
  if (claim === undefined || !isAlive(claim)) return undefined;
  const home = identityOf(paths.home);
  // Removed just now: it is nobody's.
  if (home === "gone") return undefined;
  if (claim.home !== home)
    throw new ConflictError(
      `${paths.home} is a copy of the home of a mesh that is up (pid ${claim.pid}); remove it, or end that mesh first`,
    );
  return claim;
}

/** Whose home it is: this process's, another's, or nobody's, where the file (or all of the home) was removed. What
 * cannot be read now says nothing. */
export function claimOf(paths: HomePaths): "mine" | "another's" | "nobody's" | "unknown" {
  try {
    const claim = v.parse(Claim, JSON.parse(readFileSync(paths.supervisor, "utf8")));
    return isDeepStrictEqual(claim, ownClaim(paths)) ? "mine" : "another's";
  } catch (error) {
    return ["ENOENT", "ENOTDIR"].includes(errnoOf(error) ?? "") ? "nobody's" : "unknown";
  }
}

const { i32 } = FFIType;
const LOCK_EX = 2;
const loadLibc = () => dlopen("libc.so.6", { flock: { args: [i32, i32], returns: i32 } }).symbols;

/** Removes the claim of a dead supervisor, if it is one. One process at a time looks and removes: of two, the second
 * would otherwise remove the claim that the first has put in its place. The lock is the home's own, and the kernel's. */
function removeStaleClaim(paths: HomePaths): void {
  const folder = openSync(paths.home, "r");
  try {
    loadLibc().flock(folder, LOCK_EX);
    if (runningSupervisor(paths) === undefined) rmSync(paths.supervisor, { force: true });
  } finally {
    closeSync(folder);
  }
}

/** Makes this process the home's supervisor; of several at once, one. Answers the one that is, where it is not this. */
export function claimHome(paths: HomePaths): ProcessName | undefined {
  const mine = `${paths.supervisor}.${process.pid}.tmp`;
  try {
    writeFileSync(mine, JSON.stringify(ownClaim(paths)), { mode: 0o600 });
  } catch (error) {
    throw fileFault(error, (why) => `${paths.home} cannot be the mesh's folder: ${why}`);
  }
  try {
    for (;;) {
      try {
        // Whole at once, and never over another's.
        linkSync(mine, paths.supervisor);
        return undefined;
      } catch (error) {
        if (errnoOf(error) !== "EEXIST") throw error;
      }
      const other = runningSupervisor(paths);
      if (other !== undefined) return other;
      removeStaleClaim(paths);
    }
  } finally {
    rmSync(mine, { force: true });
  }
}
