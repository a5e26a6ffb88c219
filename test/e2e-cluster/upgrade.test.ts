// An upgrade of the release to another version of everything but NATS, and back, with sandboxes that live.
import { afterAll, beforeAll, expect, setDefaultTimeout } from "bun:test";
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beside } from "../../pool/testing/errors.ts";
import type { Mesh, Sandbox } from "../../sdk/typescript/mod.ts";
import { lacks, needing } from "../cluster/needs.ts";
import { output } from "../cluster/output.ts";
import { CLUSTER_DIR } from "../cluster/programs.ts";
import { IMAGES } from "../images/kubernetes.ts";
import { inCheckout, kubectl } from "./cluster.ts";
import { INSTALLED, upgrade } from "./install.ts";
import { ClusterMesh } from "./mesh.ts";

setDefaultTimeout(300_000);
const FOLDER = join(CLUSTER_DIR, "daemon");
const NEXT = "0.9.0";

let cluster: ClusterMesh;
let mesh: Mesh;
let work: string;
beforeAll(async () => {
  if (lacks("node")) return;
  work = mkdtempSync(join(tmpdir(), "sandmesh-next-"));
  cluster = new ClusterMesh();
  mesh = await cluster.connect({ lease: "5m" });
});
afterAll(async () => {
  if (lacks("node")) return;
  await upgrade();
  await cluster[Symbol.asyncDispose]();
  rmSync(work, { recursive: true });
});

/** The chart as its next version has it: its own number, and new images by theirs. */
async function nextRelease(): Promise<{ values: object; chart: string }> {
  const chart = join(work, "chart");
  cpSync(inCheckout("deploy/chart"), chart, { recursive: true });
  const file = join(chart, "Chart.yaml");
  writeFileSync(file, readFileSync(file, "utf8").replace(/^((?:appV|v)ersion:).*$/gm, `$1 "${NEXT}"`));
  const images = Object.fromEntries(
    await Promise.all(
      ["pool", "daemon"].map(async (part) => {
        const of = (version: string): string => `docker.io/library/sandmesh-${part}:${version}`;
        const ctr = ["ctr", "--address", join(CLUSTER_DIR, "containerd.sock"), "-n", "k8s.io"];
        await output([...ctr, "images", "tag", "--force", of("0.1.0"), of(NEXT)]);
        return [part, `sandmesh-${part}:${NEXT}`];
      }),
    ),
  );
  return {
    chart,
    values: { pool: { image: images.pool }, daemon: { image: images.daemon, version: NEXT } },
  };
}

const daemonOf = async (box: Sandbox): Promise<string> => {
  const path = "jsonpath={.spec.volumes[0].hostPath.path}";
  return await kubectl("-n", INSTALLED.sandboxes, "get", "pod", box.id, "-o", path);
};

/** Of one of the mesh's own pods: who it is, and how often it was begun anew. */
const partOf = (part: "nats" | "pool"): Promise<string> => {
  const path =
    "jsonpath={.items[*].metadata.uid} {.items[*].status.containerStatuses[*].restartCount} {.items[*].spec.containers[0].image}";
  const selector = `app.kubernetes.io/component=${part}`;
  return kubectl("-n", INSTALLED.namespace, "get", "pods", "-l", selector, "-o", path);
};

needing("node")(
  "a live sandbox goes on with its daemon, its shell and its command; the next one gets what is new; and so on the way back",
  async () => {
    await using old = await mesh.acquire({ image: IMAGES.busybox });
    const shell = await old.shell({ shell: "sh" });
    await shell.exec("N=7");
    const running = beside(old.exec("until [ -e /tmp/go ]; do sleep 0.1; done; echo through"));
    const [before, nats] = [await daemonOf(old), await partOf("nats")];

    const next = await nextRelease();
    await upgrade(next.values, next.chart);
    await cluster.answers();
    expect(await partOf("pool")).toContain(`sandmesh-pool:${NEXT}`);
    expect(await partOf("nats")).toBe(nats);
    expect((await shell.exec("echo $N")).stdout.text).toBe("7\n");
    expect((await mesh.list()).map(({ sandbox }) => sandbox)).toEqual([old.id]);
    await using young = await mesh.acquire({ image: IMAGES.busybox });
    expect((await young.exec("echo here")).stdout.text).toBe("here\n");
    expect(before).not.toBe(`${FOLDER}/${NEXT}`);
    expect([await daemonOf(old), await daemonOf(young)]).toEqual([before, `${FOLDER}/${NEXT}`]);
    expect(readdirSync(FOLDER).filter((name) => !name.startsWith("."))).toContain(NEXT);

    await upgrade();
    await cluster.answers();
    await old.files.write("/tmp/go", "");
    expect((await running()).stdout.text).toBe("through\n");
    expect((await young.exec("echo still")).stdout.text).toBe("still\n");
    await using third = await mesh.acquire({ image: IMAGES.busybox });
    expect(await daemonOf(third)).toBe(before);
    for (const box of [old, young, third]) await box.release();
    expect(await cluster.podsLeft()).toEqual([]);
  },
);
