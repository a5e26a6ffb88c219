// What the daemon costs a pod on the real node: how long it takes from its start to its word `ready` in a burst, and what
// CPU and memory it has beside the same pods with `sleep` in its place. What such a pod costs the machine in all (containerd,
// runc, kubelet and the control plane with it) says what is left for the daemons.
//
//   bash test/e2e-cluster/run --program test/bench/pods.ts [--n 64]
import { readFileSync } from "node:fs";
import { newSandboxId } from "../../broker/contract/index.ts";
import { createKubernetesProvider } from "../../pool/provider/kubernetes/index.ts";
import { defaultRequests } from "../../pool/provider/kubernetes/pod.ts";
import { unheard } from "../../pool/testing/request.ts";
import { connect, type Mesh, type Sandbox } from "../../sdk/typescript/mod.ts";
import { eventually } from "../e2e/program.ts";
import { kubectl, newMesh, podProcesses, quiet, removePods, settingsFor } from "../e2e-cluster/cluster.ts";
import { INSTALLED } from "../e2e-cluster/install.ts";
import { IMAGES } from "../images/kubernetes.ts";
import { numberFlag, percentile, progress, round } from "./bench.ts";
import { cpuUs, privateDirtyMb } from "./usage.ts";

const ALL_MS = 300_000;
/** So that what was freed after the start has been given back, ms. */
const REST_MS = 5_000;

interface Cost {
  cpuMs: number;
  /** In which its first thread could have run, and another did. */
  waitMs: number;
  privateMb: number;
}

/** Nothing of one that has ended. */
function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8");
  } catch {
    return "";
  }
}

const waitMs = (pid: number): number =>
  Number(readFileSync(`/proc/${pid}/schedstat`, "latin1").split(" ")[1]) / 1e6;

/** Of each pod's process whose program has this name. */
function costOf(name: string, uids: readonly string[]): Cost {
  const named = podProcesses(new Set(uids)).filter(({ pid }) => commandOf(pid).includes(name));
  const pids = [...new Map(named.map(({ uid, pid }) => [uid, pid])).values()];
  if (pids.length !== uids.length) throw new Error(`${pids.length} of ${uids.length} pods run ${name}`);
  return {
    cpuMs: percentile(pids.map(cpuUs), 0.5) / 1000,
    waitMs: percentile(pids.map(waitMs), 0.5),
    privateMb: percentile(pids.map(privateDirtyMb), 0.5),
  };
}

/** What all processors of the machine have been busy so far, ms. */
function busyMs(): number {
  const [line = ""] = readFileSync("/proc/stat", "utf8").split("\n", 1);
  const [user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0] = line.split(/\s+/).slice(1).map(Number);
  // In USER_HZ, which is 100 everywhere.
  return (user + nice + system + irq + softirq) * 10;
}

const p = (values: number[], part: number): number => round(percentile(values, part), 1);

async function uidsOfSandboxes(): Promise<string[]> {
  const path = "jsonpath={.items[*].metadata.uid}";
  const of = ["-n", INSTALLED.sandboxes, "get", "pods", "-l", `sandmesh.dev/mesh=${INSTALLED.mesh}`];
  return (await kubectl(...of, "-o", path)).split(" ");
}

/** One after the other. */
async function alone(mesh: Mesh, count: number) {
  const boots: number[] = [];
  const cpuMs: number[] = [];
  for (let i = 0; i < count; i++) {
    await using box = await mesh.acquire({ image: IMAGES.busybox });
    cpuMs.push(costOf("sandmesh-daemon", await uidsOfSandboxes()).cpuMs);
    boots.push((await box.info()).boot_ms);
    await box.release();
    await eventually("its pod is gone", async () => (await uidsOfSandboxes()).join() === "", ALL_MS);
  }
  return { boots, cpuMs };
}

async function withDaemons(mesh: Mesh, n: number) {
  const busy = busyMs();
  const began = performance.now();
  const acquired = Array.from({ length: n }, () => mesh.acquire({ image: IMAGES.busybox, timeout: ALL_MS }));
  const boxes: Sandbox[] = await Promise.all(acquired);
  const grantedS = (performance.now() - began) / 1000;
  const nodeMs = (busyMs() - busy) / n;
  progress(`${n} granted after ${grantedS.toFixed(1)} s`);
  await Bun.sleep(REST_MS);
  const cost = costOf("sandmesh-daemon", await uidsOfSandboxes());
  // Only now: the first answer alone is 9 ms of CPU and 0.2 MB.
  const boots = (await Promise.all(boxes.map((box) => box.info()))).map(({ boot_ms }) => boot_ms);
  await Promise.all(boxes.map((box) => box.release()));
  return { boots, grantedS, nodeMs, cost };
}

/** The same pods, with the daemon's folder in them, and `sleep`. */
async function withSleep(n: number): Promise<{ runningS: number; nodeMs: number; cost: Cost }> {
  const name = newMesh();
  const command = ["/bin/sleep", "3600"];
  const resources = { requests: defaultRequests(settingsFor(name)) };
  const container = {
    name: "sandbox",
    image: IMAGES.busybox,
    imagePullPolicy: "IfNotPresent",
    command,
    resources,
  };
  const podTemplate = { spec: { containers: [container], terminationGracePeriodSeconds: 1 } };
  const daemon = { by: "image", image: IMAGES.daemon, pullPolicy: "Never" } as const;
  const provider = createKubernetesProvider(settingsFor(name, { podTemplate, daemon }), quiet);
  const running = new Set<string>();
  provider.watch((event) => event.type === "running" && running.add(event.sandbox));
  try {
    const busy = busyMs();
    const began = performance.now();
    const limit = AbortSignal.timeout(ALL_MS);
    const requests = Array.from({ length: n }, () => unheard(newSandboxId(), { image: IMAGES.busybox }));
    const made = await Promise.all(requests.map((request) => provider.create(request, limit)));
    await eventually("they run", () => running.size === n, ALL_MS);
    const runningS = (performance.now() - began) / 1000;
    const nodeMs = (busyMs() - busy) / n;
    progress(`${n} with sleep run after ${runningS.toFixed(1)} s`);
    await Bun.sleep(REST_MS);
    const cost = costOf(
      "/bin/sleep",
      made.map(({ uid }) => uid),
    );
    const all = requests.map(({ sandbox }, i) => ({ sandbox, uid: made[i]?.uid }));
    await Promise.all(provider.removeMany?.(all, AbortSignal.timeout(ALL_MS)) ?? []);
    return { runningS, nodeMs, cost };
  } finally {
    await provider.close();
    await removePods(name);
  }
}

const n = numberFlag("--n", 64);
await using mesh = await connect({ lease: "5m" });
const one = await alone(mesh, 5);
const sleep = await withSleep(n);
const { boots, grantedS, nodeMs, cost } = await withDaemons(mesh, n);
const result = {
  n,
  ready_p50_ms: p(boots, 0.5),
  ready_p99_ms: p(boots, 0.99),
  alone_ready_p50_ms: p(one.boots, 0.5),
  alone_cpu_ms: p(one.cpuMs, 0.5),
  over_sleep_cpu_ms: round(cost.cpuMs - sleep.cost.cpuMs, 1),
  over_sleep_private_mb: round(cost.privateMb - sleep.cost.privateMb, 1),
  cpu_wait_ms: round(cost.waitMs, 1),
  node_cpu_ms: round(nodeMs, 1),
  sleep_node_cpu_ms: round(sleep.nodeMs, 1),
  granted_s: round(grantedS, 1),
  sleep_running_s: round(sleep.runningS, 1),
};
process.stdout.write(`${JSON.stringify(result)}\n`);
