// NATS as the chart has it by default: three servers in three pods, which find each other by name, with the pool's records
// three times. And what becomes of a burst when one of them goes with all that it has stored.
import { afterAll, beforeAll, expect, setDefaultTimeout } from "bun:test";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beside } from "../../pool/testing/errors.ts";
import type { Mesh } from "../../sdk/typescript/mod.ts";
import { lacks, needing } from "../cluster/needs.ts";
import { output } from "../cluster/output.ts";
import { eventually } from "../e2e/program.ts";
import { IMAGES } from "../images/kubernetes.ts";
import { kubectl } from "./cluster.ts";
import { openDns } from "./dns.ts";
import { helmPath, install, type Release } from "./install.ts";
import { ClusterMesh } from "./mesh.ts";

setDefaultTimeout(240_000);
const BURST = 6;
const TRIPLE: Release = {
  release: "triple",
  namespace: "triple",
  sandboxes: "triple",
  mesh: "triple",
  natsAddress: "10.92.0.51",
  values: {
    sandboxNamespace: "",
    nats: { replicas: 3, clusterIP: "10.92.0.51" },
    pool: { kubernetes: { mesh: "triple" } },
    daemon: { by: "image" },
  },
};
const OF = ["-n", TRIPLE.namespace];
const NATS = ["pods", "-l", "app.kubernetes.io/component=nats"];

let dns: Disposable;
let keys: string;
let cluster: ClusterMesh;
let mesh: Mesh;
beforeAll(async () => {
  if (lacks("node")) return;
  dns = await openDns();
  keys = await mkdtemp(join(tmpdir(), "sandmesh-triple-"));
  await install(keys, TRIPLE);
  cluster = new ClusterMesh(TRIPLE, keys);
  mesh = await cluster.connect({ lease: "1m" });
});
afterAll(async () => {
  if (lacks("node")) return;
  await cluster[Symbol.asyncDispose]();
  await output([await helmPath(), "uninstall", TRIPLE.release, ...OF, "--wait"]);
  await kubectl("delete", "namespace", TRIPLE.namespace, "--wait=false");
  dns[Symbol.dispose]();
  await rm(keys, { recursive: true });
});

const natsReady = async (): Promise<number> => {
  const path = "jsonpath={.items[*].status.containerStatuses[*].ready}";
  const said = await kubectl(...OF, "get", ...NATS, "-o", path);
  return said.split(" ").filter((ready) => ready === "true").length;
};

needing("node")(
  "one of three servers goes in a burst, with its disk: nothing is lost, nothing is there twice, and it comes back",
  async () => {
    await using first = await mesh.acquire({ image: IMAGES.busybox });
    expect(await natsReady()).toBe(3);
    const running = beside(first.exec("until [ -e /tmp/go ]; do sleep 0.1; done; echo through"));
    const boxes = beside(
      Promise.all(
        Array.from({ length: BURST }, () => mesh.acquire({ image: IMAGES.busybox, timeout: "2m" })),
      ),
    );
    await cluster.begun();
    await kubectl(...OF, "delete", "pod", "triple-nats-0", "--force", "--grace-period=0");
    const granted = await boxes();
    await first.files.write("/tmp/go", "");
    expect((await running()).stdout.text).toBe("through\n");
    await cluster.whole([first, ...granted]);
    await cluster.nothingLeft(30_000);
    await eventually("three servers again", async () => (await natsReady()) === 3, 60_000);
  },
);

/** Whether a drain of its node may end one of the servers now. It is asked, and nothing is ended. */
async function mayEvict(name: string): Promise<boolean> {
  const metadata = { name, namespace: TRIPLE.namespace };
  const eviction = {
    apiVersion: "policy/v1",
    kind: "Eviction",
    metadata,
    deleteOptions: { dryRun: ["All"] },
  };
  const path = `/api/v1/namespaces/${TRIPLE.namespace}/pods/${name}/eviction`;
  return await output(["kubectl", "create", "--raw", path, "-f", "-"], JSON.stringify(eviction)).then(
    () => true,
    (error: Error) => {
      expect(error.message).toContain("disruption budget");
      return false;
    },
  );
}

needing("node")("a drain may end one of three servers, and no second one while that is away", async () => {
  await eventually("one may go", () => mayEvict("triple-nats-2"), 30_000);
  await kubectl(...OF, "delete", "pod", "triple-nats-0", "--wait=false");
  await eventually("it is away", async () => (await natsReady()) < 3);
  expect(await mayEvict("triple-nats-2")).toBe(false);
  await eventually("three servers again", async () => (await natsReady()) === 3, 60_000);
  await cluster.answers();
});

needing("node")(
  "all three have been there: with another one gone the pool answers from its records",
  async () => {
    await using box = await mesh.acquire({ image: IMAGES.busybox });
    await kubectl(...OF, "delete", "pod", "triple-nats-1", "--force", "--grace-period=0");
    await cluster.answers();
    expect((await mesh.list()).map(({ sandbox }) => sandbox)).toEqual([box.id]);
    await box.release();
    await cluster.nothingLeft(30_000);
  },
);
