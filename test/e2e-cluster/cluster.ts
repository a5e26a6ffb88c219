// For the tests on a cluster: who they are there, what is left of them, by the API server's word and the node's own
// processes, and how a daemon is ended from outside. They run by test/e2e-cluster/run, which says what that makes.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import pino from "pino";
import * as v from "valibot";
import { randomName } from "../../broker/contract/index.ts";
import { KubernetesSettings } from "../../pool/provider/kubernetes/index.ts";
import { FOREIGN } from "../cluster/needs.ts";
import { output } from "../cluster/output.ts";
import { CLUSTER_DIR } from "../cluster/programs.ts";
import { IMAGES } from "../images/kubernetes.ts";

const ROOT = join(import.meta.dir, "..", "..");
export const quiet = pino({ level: process.env.SANDMESH_TEST_LOG ?? "silent" }, pino.destination(2));

export const newMesh = (): string => `test-${randomName(6)}`;

/** The node of ours that is real; on another cluster any. */
export const REAL_NODE: Record<string, string> = FOREIGN ? {} : { "sandmesh.test/real": "true" };
/** Of the mesh's own images: ours were imported, and are nowhere else. */
export const PULL_POLICY = FOREIGN ? "IfNotPresent" : "Never";

/** Settings for the real node; others over them. */
export function settingsFor(mesh: string, more: Partial<v.InferInput<typeof KubernetesSettings>> = {}) {
  return v.parse(KubernetesSettings, {
    mesh,
    daemon: { by: "image", image: IMAGES.daemon, pullPolicy: PULL_POLICY },
    nodeSelector: REAL_NODE,
    imagePullPolicy: "IfNotPresent",
    ...more,
  });
}

/** By test/cluster/enter, kubectl is on the PATH and KUBECONFIG set. */
export const kubectl = (...argv: string[]): Promise<string> => output(["kubectl", ...argv]);

const selectorOf = (mesh: string): string => `sandmesh.dev/mesh=${mesh}`;

/** The mesh's pods by name, with their phase. */
export async function podsOf(mesh: string, namespace = "default"): Promise<string[]> {
  const format = "{range .items[*]}{.metadata.name}={.status.phase}{'\\n'}{end}";
  const all = ["-n", namespace, "get", "pods", "-l", selectorOf(mesh)];
  const out = await kubectl(...all, "-o", `jsonpath=${format}`);
  return out.split("\n").filter((line) => line !== "");
}

export interface PodProcess {
  pid: number;
  /** Of its pod. */
  uid: string;
}

/** The node's processes of pods by these uids, from the kernel; none of another cluster's, whose node is elsewhere. */
export function podProcesses(uids: ReadonlySet<string>): PodProcess[] {
  if (FOREIGN) return [];
  const found: PodProcess[] = [];
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      const group = readFileSync(`/proc/${pid}/cgroup`, "utf8");
      const uid = group.match(/\/pod([0-9a-f-]{36})/)?.[1];
      if (uid !== undefined && uids.has(uid)) found.push({ pid: Number(pid), uid });
    } catch {
      // It has ended meanwhile.
    }
  }
  return found;
}

/** The same in words. */
export const processesOf = (uids: ReadonlySet<string>): string[] =>
  podProcesses(uids).map(({ pid, uid }) => `process ${pid} of pod ${uid}`);

/** Kills the runtime's shim of a pod: the parent of its containers' first processes. */
export function killShim(uid: string): void {
  const pids = podProcesses(new Set([uid])).map(({ pid }) => pid);
  const parents = pids.map((pid) =>
    Number(readFileSync(`/proc/${pid}/status`, "utf8").match(/^PPid:\s(\d+)/m)?.[1]),
  );
  const isShim = (pid: number): boolean =>
    readFileSync(`/proc/${pid}/cmdline`, "utf8").includes(`\0-address\0${CLUSTER_DIR}/`);
  const shim = parents.find((pid) => !pids.includes(pid) && isShim(pid));
  if (shim === undefined) throw new Error(`no shim of pod ${uid}`);
  process.kill(shim, "SIGKILL");
}

const ContainerId = v.pipe(v.string(), v.regex(/^containerd:\/\/[0-9a-f]+$/));

/** Ends a container's first process with SIGKILL, as soon as it runs. */
export async function killContainer(pod: string, container: string, namespace: string): Promise<void> {
  const of = ["-n", namespace];
  await kubectl(...of, "wait", `pod/${pod}`, "--for=jsonpath={.status.phase}=Running", "--timeout=30s");
  const path = `jsonpath={.status.containerStatuses[?(@.name=='${container}')].containerID}`;
  const id = v.parse(ContainerId, await kubectl(...of, "get", "pod", pod, "-o", path)).slice(13);
  const ctr = ["ctr", "--address", join(CLUSTER_DIR, "containerd.sock"), "-n", "k8s.io"];
  await output([...ctr, "tasks", "kill", "-s", "SIGKILL", id]);
}

export const killDaemon = (sandbox: string, namespace = "default"): Promise<void> =>
  killContainer(sandbox, "sandbox", namespace);

/** Takes away what a failed test has left. */
export async function removePods(mesh: string, namespace = "default"): Promise<void> {
  const all = ["-n", namespace, "delete", "pods", "-l", selectorOf(mesh)];
  await kubectl(...all, "--grace-period=1", "--wait=true", "--timeout=60s");
}

export const inCheckout = (...path: string[]): string => join(ROOT, ...path);
