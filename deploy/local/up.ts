// `sandmesh up` and `down`: the one-machine mesh, in the background.
import { closeSync, existsSync, openSync, readFileSync, statfsSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import {
  ConnectionError,
  errnoOf,
  FileError,
  InvalidRequestError,
  NotFoundError,
  PermissionDeniedError,
  wordsOf,
} from "../../broker/contract/index.ts";
import { realPath } from "../../broker/credentials/real-path.ts";
import { PoolConfig } from "../../pool/config.ts";
import { needDaemon, removeEmptyGroups } from "../../pool/provider/local/index.ts";
import { killAll } from "../../pool/provider/local/processes.ts";
import { lastLine } from "./child.ts";
import {
  endsWithMesh,
  type HomePaths,
  homePaths,
  isAlive,
  makeHome,
  removeOwn,
  runningSupervisor,
} from "./home.ts";
import { clearLeft, DAEMON_DIR, Left, type LeftOnMachine, leftBehind, nothingLeft } from "./left.ts";
import { countServices, unnamedSupervisor } from "./services.ts";
import type { MeshAddress, UpOptions } from "./supervisor.ts";

const Address = v.object({ url: v.string(), credentials: v.string() });
/** With the download of nats-server at the very first start. */
const START_MS = 180_000;
/** The supervisor's own limits (drain, then stop) add up to less. */
const STOP_MS = 120_000;
const KILL_MS = 10_000;

/** With less than this left of the home's disk, that is why a mesh did not start. */
const NEEDED_BYTES = 1024 ** 2;

/** Supervisors that live as long as this process: their stdin's other end must not be collected before. */
const owned = new Set<Bun.Subprocess>();

/** undefined while it is not there yet; it appears whole. Throws FileError where it is damaged: nobody would mend it. */
function readAddress(paths: HomePaths): MeshAddress | undefined {
  if (!existsSync(paths.mesh)) return undefined;
  try {
    return v.parse(Address, JSON.parse(readFileSync(paths.mesh, "utf8")));
  } catch (cause) {
    // Removed since: the mesh has just ended.
    if (!existsSync(paths.mesh)) return undefined;
    const message = `${paths.mesh} is damaged: run \`sandmesh down\` and \`sandmesh up\``;
    throw new FileError(message, { reason: "EINVAL", cause });
  }
}

/** Starts a mesh in `home`, or answers the one that is up there. Throws InvalidRequestError that names the setting of
 * the pool at fault, FileError where the home cannot be made or its disk is full, ProviderError where the daemon was not
 * built, ConnectionError with what the log says. */
export async function up(home: string, options: UpOptions = {}): Promise<MeshAddress & { already: boolean }> {
  checkPoolSettings(options.pool ?? {});
  // By one name, whatever links lead there: by it the mesh's processes are found, and its files kept from sandboxes.
  const paths = makeHome(realPath(home));
  const there = await addressOfOther(paths);
  if (there !== undefined) return { ...there, already: true };
  if (options.providers?.includes("local") ?? true) needDaemon(DAEMON_DIR, "no mesh was started");
  const logFile = join(paths.logs, "supervisor.log");
  const log = openSync(logFile, "a", 0o600);
  const child = Bun.spawn([process.execPath, join(import.meta.dir, "supervisor.ts"), paths.home], {
    env: { ...process.env, SANDMESH_UP: JSON.stringify(options) },
    stdio: [options.owned ? "pipe" : "ignore", "pipe", log],
    detached: true,
  });
  if (options.owned) owned.add(child);
  closeSync(log);
  const line = await firstLine(child.stdout, START_MS);
  child.unref();
  const address = line === undefined ? undefined : v.safeParse(Address, JSON.parse(line));
  if (!address?.success) {
    child.kill("SIGTERM");
    // Of several at once one starts it, and all have it.
    const other = await addressOfOther(paths);
    if (other !== undefined) return { ...other, already: true };
    throw fullDisk(paths.home) ?? new ConnectionError(`the mesh did not start: ${lastLine(logFile)}`);
  }
  return { ...address.output, already: false };
}

/** A log says nothing of a disk that takes no log. */
function fullDisk(home: string): FileError | undefined {
  const { bsize, bavail } = statfsSync(home);
  const left = bsize * bavail;
  if (left >= NEEDED_BYTES) return undefined;
  const message = `the mesh did not start: the disk of ${home} is full (${Math.floor(left / 1024)} KiB left): make room there, or choose another folder`;
  return new FileError(message, { reason: "ENOSPC" });
}

/** Before anything is started: the pool would refuse them too, but as a process that ends. */
function checkPoolSettings(settings: Record<string, unknown>): void {
  const known: Record<string, v.GenericSchema> = PoolConfig.entries;
  for (const [field, value] of Object.entries(settings)) {
    const schema = Object.hasOwn(known, field) ? known[field] : undefined;
    if (schema === undefined)
      throw new InvalidRequestError(`${field}: the pool has no such setting; see \`sandmesh config\``, {
        field,
      });
    const result = v.safeParse(schema, value, { abortEarly: true });
    if (!result.success) throw new InvalidRequestError(`${field}: ${wordsOf(result.issues[0])}`, { field });
  }
}

/** Where the mesh is that another process has started, or is just starting; undefined where none is. */
async function addressOfOther(paths: HomePaths): Promise<MeshAddress | undefined> {
  const deadline = Date.now() + START_MS;
  while (runningSupervisor(paths) !== undefined) {
    const address = readAddress(paths);
    if (address !== undefined) return address;
    if (Date.now() > deadline)
      throw new ConnectionError(`the mesh in ${paths.home} neither starts nor ends; see ${paths.logs}`);
    await Bun.sleep(20);
  }
  return undefined;
}

async function firstLine(stream: ReadableStream<Uint8Array>, limitMs: number): Promise<string | undefined> {
  const reader = stream.getReader();
  const timer = setTimeout(() => void reader.cancel(), limitMs);
  try {
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return undefined;
      text += Buffer.from(value).toString("utf8");
      const end = text.indexOf("\n");
      if (end >= 0) return text.slice(0, end);
    }
  } finally {
    clearTimeout(timer);
    await reader.cancel();
  }
}

/** Ends the mesh in `home` and all its sandboxes, and tells what it left: zeros. Throws NotFoundError where none is up
 * and nothing is left of one, PermissionDeniedError where it is another user's, ConflictError where `home` is a copy of
 * another mesh's. */
export async function down(home: string): Promise<Left> {
  const paths = homePaths(realPath(home));
  // One whose files were removed is found by its arguments.
  const supervisor = runningSupervisor(paths) ?? unnamedSupervisor(paths);
  if (supervisor === undefined) return clearAfterDeath(paths);
  try {
    // One that was stopped would not hear the other.
    for (const signal of ["SIGCONT", "SIGTERM"] as const) process.kill(supervisor.pid, signal);
  } catch (error) {
    if (errnoOf(error) === "EPERM")
      throw new PermissionDeniedError(
        `the mesh in ${home} is another user's (its supervisor is ${supervisor.pid})`,
      );
    // It has ended by itself meanwhile.
    if (errnoOf(error) !== "ESRCH") throw error;
  }
  const deadline = Date.now() + STOP_MS;
  while (isAlive(supervisor)) {
    if (Date.now() > deadline) {
      await killAll("the mesh's supervisor", () => (isAlive(supervisor) ? [supervisor.pid] : []), KILL_MS);
      return clearAfterDeath(paths);
    }
    await Bun.sleep(20);
  }
  return { ...(await allLeft(paths)), leases: leasesLeft(paths) };
}

/** Counted here, not believed: also what the mesh itself consists of. */
async function allLeft(paths: HomePaths): Promise<LeftOnMachine> {
  const left = await leftBehind(paths);
  return { ...left, processes: left.processes + countServices(paths) };
}

/** What the pool said to the supervisor; with the home its records went. */
function leasesLeft(paths: HomePaths): number | null {
  if (!existsSync(paths.home)) return 0;
  try {
    return v.parse(Left, JSON.parse(readFileSync(join(paths.home, "down.json"), "utf8"))).leases;
  } catch {
    return null;
  }
}

/** After a killed supervisor: its children died with it, its sandboxes are ended here. */
async function clearAfterDeath(paths: HomePaths): Promise<Left> {
  const before = await allLeft(paths);
  const was = endsWithMesh(paths).filter((file) => existsSync(file));
  if (was.length === 0 && nothingLeft(before)) {
    // A mesh that was killed, whose home was removed: its sandboxes ended by themselves, their cgroups did not.
    if (removeEmptyGroups(paths.local)) return { ...before, leases: 0 };
    throw new NotFoundError(`no mesh is up in ${paths.home}`);
  }
  const removed = !existsSync(paths.home);
  await clearLeft(paths);
  for (const file of removed ? [paths.home] : was) removeOwn(file);
  return { ...(await allLeft(paths)), leases: 0 };
}
