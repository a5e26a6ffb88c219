// What a sandbox reaches from within, by the chart's network policies, as the cluster enforces them.
import { afterAll, beforeAll, expect, setDefaultTimeout } from "bun:test";
import type { Mesh, Sandbox } from "../../sdk/typescript/mod.ts";
import { needing } from "../cluster/needs.ts";
import { eventually } from "../e2e/program.ts";
import { IMAGES } from "../images/kubernetes.ts";
import { kubectl } from "./cluster.ts";
import { INSTALLED } from "./install.ts";
import { ClusterMesh } from "./mesh.ts";

setDefaultTimeout(180_000);
let cluster: ClusterMesh;
let mesh: Mesh;
beforeAll(async () => {
  cluster = new ClusterMesh();
  mesh = await cluster.connect({ lease: "1m" });
});
afterAll(() => cluster[Symbol.asyncDispose]());

/** Whether a TCP connection is made within two seconds. */
async function reaches(box: Sandbox, host: string, port: number): Promise<boolean> {
  const { exitCode } = await box.exec(["nc", "-w", "2", host, String(port), "-e", "true"], {
    timeout: "20s",
  });
  return exitCode === 0;
}

const addressOf = async (selector: string, namespace: string): Promise<string> =>
  await kubectl("-n", namespace, "get", "pods", "-l", selector, "-o", "jsonpath={.items[0].status.podIP}");

for (const network of ["none", "policy:open"] as const) {
  needing("node")(
    `a sandbox with network ${network} reaches NATS, and neither API server, node, metadata, pool nor another sandbox`,
    async () => {
      await using box = await mesh.acquire({ image: IMAGES.busybox, network });
      await using other = await mesh.acquire({ image: IMAGES.busybox, network });
      await other.exec(["sh", "-c", "nc -l -p 7000 -e true & sleep 0.2"]);
      const pool = await addressOf("app.kubernetes.io/component=pool", INSTALLED.namespace);
      const neighbour = await addressOf(`sandmesh.dev/sandbox=${other.id}`, INSTALLED.sandboxes);
      // The policy must have come to the node before what it forbids means anything.
      await eventually(
        "the policies are in force",
        async () => !(await reaches(box, "10.92.0.1", 443)),
        60_000,
      );
      expect(await reaches(box, INSTALLED.natsAddress, 4222)).toBe(true);
      const forbidden: [string, number][] = [
        ["10.92.0.1", 443],
        ["10.90.0.1", 6443],
        ["10.90.0.1", 10250],
        ["169.254.169.254", 80],
        [pool, 8080],
        [neighbour, 7000],
      ];
      const reached = [];
      for (const [host, port] of forbidden)
        if (await reaches(box, host, port)) reached.push(`${host}:${port}`);
      expect(reached).toEqual([]);
    },
  );
}
