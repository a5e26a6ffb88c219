// Hands on the test cluster's own programs: one is frozen, slowed down, or killed and started again.
import { spawn } from "node:child_process";
import { closeSync, openSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { until } from "../../broker/server/testing.ts";
import { startOf } from "../../pool/provider/local/processes.ts";
import { output } from "./output.ts";

export const CLUSTER_DIR = process.env.SANDMESH_CLUSTER_DIR ?? "/run/sandmesh-cluster";
type Name = "apiserver" | "etcd" | "kubelet" | "kwok";

const fileOf = (name: Name): string => join(CLUSTER_DIR, "pids", name);
const pidOf = (name: Name): number => Number(readFileSync(fileOf(name), "utf8").split(" ")[0]);

/** Lets it go on at its disposal, or when this process ends without: the runner ends at an unhandled error, in the midst of
 * tests, and a cluster that is used again would stand still. */
function thawing(pid: number): Disposable {
  const script = 'cat; kill -CONT "$1"';
  const watcher = spawn("/bin/sh", ["-c", script, "sh", String(pid)], {
    detached: true,
    stdio: ["pipe", "ignore", "ignore"],
  });
  watcher.unref();
  return {
    [Symbol.dispose]() {
      process.kill(pid, "SIGCONT");
      watcher.stdin.end();
    },
  };
}

/** Stops it in its tracks while `work` goes on, as if its machine were frozen; its connections stay. */
export async function frozen<T>(name: Name, work: () => Promise<T>): Promise<T> {
  const pid = pidOf(name);
  using _ = thawing(pid);
  process.kill(pid, "SIGSTOP");
  return await work();
}

/** A program on a disk that answers in seconds: of each second it runs for a tenth. */
const SLOW = { stoppedMs: 900, runningMs: 100 };

/** Slows it down while `work` goes on. */
export async function slowed<T>(name: Name, work: () => Promise<T>): Promise<T> {
  const pid = pidOf(name);
  using _ = thawing(pid);
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

/** Where the API server tells that each is well. */
const WELL = { apiserver: "/readyz", kubelet: "/api/v1/nodes/node/proxy/healthz" } as const;

/** Kills it while `work` goes on, and starts it again as it was; resolves when it is well. What it wrote is in its log. */
export async function killed<T>(name: keyof typeof WELL, work: () => Promise<T>): Promise<T> {
  const pid = pidOf(name);
  const argv = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0").slice(0, -1);
  process.kill(pid, "SIGKILL");
  // Its port is its own until its last thread has ended, long after the first is a zombie where the machine is busy.
  await until(`the end of ${name}, which was killed`, () => threadsOf(pid) <= 1, 30_000, 20);
  try {
    return await work();
  } finally {
    const log = openSync(join(CLUSTER_DIR, "log", `${name}.log`), "a");
    const child = Bun.spawn(["setsid", ...argv], { stdio: ["ignore", log, log] });
    child.unref();
    closeSync(log);
    // As test/cluster names processes: with their start, so that another one with the same number is not taken for it.
    writeFileSync(fileOf(name), `${child.pid} ${startOf(child.pid)}\n`);
    const well = (): Promise<boolean> =>
      output(["kubectl", "get", "--raw", WELL[name]]).then(
        () => true,
        () => false,
      );
    await until(`${name} is well`, well, 60_000, 50);
  }
}

/** Kills the API server and starts it again as it was; resolves when it answers. */
export const restartApiServer = (): Promise<void> => killed("apiserver", async () => undefined);
