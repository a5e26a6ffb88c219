// What a one-machine mesh has left behind, counted from the kernel and the disk; and clearing it after a kill.
import { rmSync } from "node:fs";
import { join } from "node:path";
import { createLocalProvider, leftovers } from "../../pool/provider/local/index.ts";
import { type HomePaths, readProcess, runningSupervisor } from "./home.ts";

export interface LeftOnMachine {
  sandboxes: number;
  processes: number;
  mounts: number;
}

export async function leftBehind(paths: HomePaths): Promise<LeftOnMachine> {
  const { sandboxes, processes, mounts } = await leftovers(paths.local);
  return { sandboxes, processes, mounts };
}

/** Ends what a killed mesh left in this home, its lease records among it. Only for a home in which none is up. */
export async function clearLeft(paths: HomePaths): Promise<void> {
  if (runningSupervisor(paths) !== undefined || readProcess(paths.supervisor) !== undefined) return;
  const provider = createLocalProvider({
    stateDir: paths.local,
    daemonDir: join(import.meta.dir, "..", "..", "dist", "daemon"),
    natsUrl: "nats://127.0.0.1:1",
  });
  const signal = AbortSignal.timeout(60_000);
  try {
    for (const { sandbox } of await provider.list(signal)) await provider.remove(sandbox, undefined, signal);
  } finally {
    await provider.close();
  }
  rmSync(join(paths.nats, "jetstream"), { recursive: true, force: true });
}
