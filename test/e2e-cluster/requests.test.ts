// What a sandbox has of a busy node whose spec says nothing of processors and memory, from the node's own kernel.
import { afterAll, afterEach, beforeAll, expect, setDefaultTimeout } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import type { Mesh, Sandbox } from "../../sdk/typescript/mod.ts";
import { needing } from "../cluster/needs.ts";
import { IMAGES } from "../images/kubernetes.ts";
import { kubectl, podProcesses } from "./cluster.ts";
import { INSTALLED } from "./install.ts";
import { ClusterMesh } from "./mesh.ts";

setDefaultTimeout(120_000);
let cluster: ClusterMesh;
let mesh: Mesh;
beforeAll(async () => {
  cluster = new ClusterMesh();
  mesh = await cluster.connect({ lease: "1m" });
});
afterEach(() => cluster.nothingLeft(30_000));
afterAll(() => cluster[Symbol.asyncDispose]());

/** The cgroup of a pod that shares out processors, below its hierarchy. */
function cpuGroup(uid: string): string {
  const [process] = podProcesses(new Set([uid]));
  if (process === undefined) throw new Error(`pod ${uid} has no process`);
  const groups = readFileSync(`/proc/${process.pid}/cgroup`, "utf8").split("\n");
  // Of version 1 a line `N:cpu,cpuacct:PATH`, of version 2 `0::PATH`.
  const line =
    groups.find((each) => (each.split(":")[1] ?? "").split(",").includes("cpu")) ??
    groups.find((each) => each.startsWith("0::"));
  const path = line?.match(/:(\/.*\/pod[0-9a-f-]{36})/)?.[1];
  if (path === undefined) throw new Error(`no pod's cgroup in ${groups.join(" ")}`);
  return path;
}

/** undefined where cgroups are of version 2. */
function sharesOf(group: string): number | undefined {
  const file = ["cpu", "cpu,cpuacct"]
    .map((name) => `/sys/fs/cgroup/${name}${group}/cpu.shares`)
    .find(existsSync);
  return file === undefined ? undefined : Number(readFileSync(file, "utf8"));
}

async function podOf({ id }: Sandbox): Promise<{ uid: string; qos: string }> {
  const path = "jsonpath={.metadata.uid} {.status.qosClass}";
  const said = await kubectl("-n", INSTALLED.sandboxes, "get", "pod", id, "-o", path);
  const [uid = "", qos = ""] = said.split(" ");
  return { uid, qos };
}

needing("node")(
  "a sandbox that names no cpu has a share of its node, and one that does has its own",
  async () => {
    await using unnamed = await mesh.acquire({ image: IMAGES.busybox, timeout: "1m" });
    await using named = await mesh.acquire({ image: IMAGES.busybox, timeout: "1m", cpu: 0.5 });
    const pods = [await podOf(unnamed), await podOf(named)];
    // All BestEffort pods of a node share two thousandths of a core.
    expect(pods.map(({ qos }) => qos)).toEqual(["Burstable", "Burstable"]);
    const groups = pods.map(({ uid }) => cpuGroup(uid));
    for (const group of groups) expect(group).toContain("/burstable/");
    // A core is 1,024. (Version 2 weighs such small ones alike: its least is 1 of 100 for a core.)
    const shares = groups.map(sharesOf);
    const expected: typeof shares = shares[0] === undefined ? [undefined, undefined] : [20, 512];
    expect(shares).toEqual(expected);
  },
);
