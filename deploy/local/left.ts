// What a one-machine mesh has left behind, counted from the kernel and the disk; and clearing it after a kill.
import { join } from "node:path";
import { type Logger, pino } from "pino";
import * as v from "valibot";
import { createLocalProvider, leftovers } from "../../pool/provider/local/index.ts";
import { counted } from "../../sdk/cli/output.ts";
import { type HomePaths, removeOwn, runningSupervisor } from "./home.ts";
import { endServices } from "./services.ts";

/** Where `bash deploy/setup` builds the daemon. */
export const DAEMON_DIR = join(import.meta.dir, "..", "..", "dist", "daemon");

export const Left = v.object({
  sandboxes: v.number(),
  processes: v.number(),
  mounts: v.number(),
  /** null: not known, since the pool could not be asked. */
  leases: v.nullable(v.number()),
});
export type Left = v.InferOutput<typeof Left>;
export type LeftOnMachine = Omit<Left, "leases">;

/** What is not known counts as left. */
export const nothingLeft = (left: Left | LeftOnMachine): boolean =>
  Object.values(left).every((count) => count === 0);

/** The line that proves an orderly end. */
export const describeLeft = (left: Left): string =>
  `left behind: ${counted(left.sandboxes, "sandbox")}, ${counted(left.processes, "process")}, ${counted(left.mounts, "mount")}, ${left.leases === null ? "leases not known" : counted(left.leases, "lease")}`;

export async function leftBehind(paths: HomePaths): Promise<LeftOnMachine> {
  const { sandboxes, processes, mounts, services } = await leftovers(paths.local);
  return { sandboxes, processes: processes + services, mounts };
}

/** Ends what a killed mesh left in this home, its lease records among it. Does nothing where another process's is up:
 * a supervisor that has claimed the home calls this before it starts anything. */
export async function clearLeft(paths: HomePaths): Promise<void> {
  const supervisor = runningSupervisor(paths);
  if (supervisor !== undefined && supervisor.pid !== process.pid) return;
  await endServices(paths);
  await endLocal(paths, pino({ level: "silent" }));
  removeOwn(join(paths.nats, "jetstream"));
}

/** Until everything local is removed: it is killed, so that only the kernel's unmounting takes time. */
const END_MS = 60_000;

/** Removes all local sandboxes of this home, and the relay. */
export async function endLocal(paths: HomePaths, log: Logger): Promise<void> {
  const provider = createLocalProvider({ ...localSettings(paths, "127.0.0.1:1"), log });
  try {
    await provider.end(AbortSignal.timeout(END_MS));
  } finally {
    await provider.close();
  }
}

/** The local provider's settings for a mesh in this home. `nats` is host:port. */
export function localSettings(paths: HomePaths, nats: string) {
  return {
    stateDir: paths.local,
    daemonDir: DAEMON_DIR,
    natsUrl: nats,
    // The mesh's own keys and credentials are nothing for a sandbox, wherever on this machine the folders may lie.
    hide: [paths.home, paths.nats, paths.pool, paths.logs],
  };
}
