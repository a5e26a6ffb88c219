// Hands on the test cluster's own programs: one is frozen, slowed down, or killed and started again.
import { closeSync, openSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { until } from "../../broker/server/testing.ts";
import { startOf } from "../../pool/provider/local/processes.ts";
import { output } from "./output.ts";

export const CLUSTER_DIR = process.env.SANDMESH_CLUSTER_DIR ?? "/run/sandmesh-cluster";
type Name = "apiserver" | "etcd" | "kubelet" | "kwok";

const fileOf = (name: Name): string => join(CLUSTER_DIR, "pids", name);
const pidOf = (name: Name): number => Number(readFileSync(fileOf(name), "utf8").split(" ")[0]);

/** Stops it in its tracks while `work` goes on, as if its machine were frozen; its connections stay. */
export async function frozen<T>(name: Name, work: () => Promise<T>): Promise<T> {
  const pid = pidOf(name);
  process.kill(pid, "SIGSTOP");
  try {
    return await work();
  } finally {
    process.kill(pid, "SIGCONT");
  }
}

/** A program on a disk that answers in seconds: of each second it runs for a tenth. */
const SLOW = { stoppedMs: 900, runningMs: 100 };

/** Slows it down while `work` goes on. */
export async function slowed<T>(name: Name, work: () => Promise<T>): Promise<T> {
  const pid = pidOf(name);
  let ended = false;
  const rhythm = async (): Promise<void> => {
    while (!ended) {
      process.kill(pid, "SIGSTOP");
      await Bun.sleep(SLOW.stoppedMs);
      process.kill(pid, "SIGCONT");
      await Bun.sleep(SLOW.runningMs);
    }
  };
  const beating = rhythm();
  try {
    return await work();
  } finally {
    ended = true;
    await beating;
  }
}

/** 1 also for a zombie that nobody has waited for. */
function threadsOf(pid: number): number {
  if (startOf(pid) !== undefined) return Number.POSITIVE_INFINITY;
  try {
    return readdirSync(`/proc/${pid}/task`).length;
  } catch {
    return 0;
  }
}

/** Kills the API server and starts it again as it was; resolves when it answers. What it wrote is in its log. */
export async function restartApiServer(): Promise<void> {
  const pid = pidOf("apiserver");
  const argv = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0").slice(0, -1);
  process.kill(pid, "SIGKILL");
  // The port is its own until its last thread has ended, long after the first is a zombie where the machine is busy.
  await until("the end of the API server that was killed", () => threadsOf(pid) <= 1, 30_000, 20);
  const log = openSync(join(CLUSTER_DIR, "log", "apiserver.log"), "a");
  const child = Bun.spawn(["setsid", ...argv], { stdio: ["ignore", log, log] });
  child.unref();
  closeSync(log);
  // As test/cluster names processes: with their start, so that another one with the same number is not taken for it.
  writeFileSync(fileOf("apiserver"), `${child.pid} ${startOf(child.pid)}\n`);
  const ready = (): Promise<boolean> =>
    output(["kubectl", "get", "--raw", "/readyz"]).then(
      () => true,
      () => false,
    );
  await until("the API server", ready, 60_000, 50);
}
