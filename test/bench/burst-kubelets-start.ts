// Starts the process of the simulated daemons of one mesh (burst-kubelets.ts).
import { join } from "node:path";
import { endingWithUs } from "../../broker/server/ending.ts";
import { inTime } from "./burst-wait.ts";
import { lines } from "./lines.ts";

const START_MS = 20_000;
const STOP_MS = 15_000;

export interface Kubelets {
  readonly pid: number;
  /** Rejects when it has ended and nobody had asked it to. */
  readonly failed: Promise<never>;
  stop(): Promise<void>;
}

export async function startKubelets(mesh: string): Promise<Kubelets> {
  const argv = [process.execPath, join(import.meta.dir, "burst-kubelets.ts"), mesh];
  const child = Bun.spawn(endingWithUs(argv), { stdio: ["ignore", "pipe", "inherit"] });
  const failed = child.exited.then((code) => {
    throw new Error(`the simulated daemons' process ended with ${code}`);
  });
  failed.catch(() => undefined);
  try {
    await inTime(
      "the simulated daemons' process",
      START_MS,
      Promise.race([lines(child.stdout).next(), failed]),
    );
  } catch (error) {
    child.kill("SIGKILL");
    throw error;
  }
  return {
    pid: child.pid,
    failed,
    async stop() {
      child.kill("SIGTERM");
      await inTime("the end of the simulated daemons", STOP_MS, child.exited).catch(() =>
        child.kill("SIGKILL"),
      );
      await child.exited;
    },
  };
}
