// What a sandbox reaches from within, by the chart's network policies, as the cluster enforces them.
import { afterAll, beforeAll, expect, setDefaultTimeout } from "bun:test";
import type { Mesh, Sandbox } from "../../sdk/typescript/mod.ts";
import { lacks, needing } from "../cluster/needs.ts";
import { output } from "../cluster/output.ts";
import { eventually } from "../e2e/program.ts";
import { IMAGES } from "../images/kubernetes.ts";
import { kubectl } from "./cluster.ts";
import { INSTALLED } from "./install.ts";
import { ClusterMesh } from "./mesh.ts";

setDefaultTimeout(180_000);
/** Neither the cluster's nor private: for documentation (RFC 5737). The node has it while this runs. */
const OUTSIDE = "198.51.100.7";
let cluster: ClusterMesh;
let mesh: Mesh;
let outside: { readonly port: number; stop(closing: boolean): void };
beforeAll(async () => {
  if (lacks("node")) return;
  await output(["ip", "address", "add", `${OUTSIDE}/32`, "dev", "lo"]);
  outside = Bun.listen({ hostname: OUTSIDE, port: 0, socket: { data: () => undefined } });
  cluster = new ClusterMesh();
  mesh = await cluster.connect({ lease: "1m" });
});
afterAll(async () => {
  if (lacks("node")) return;
  await cluster[Symbol.asyncDispose]();
  outside.stop(true);
  await output(["ip", "address", "delete", `${OUTSIDE}/32`, "dev", "lo"]);
});

/** Whether a TCP connection is made within two seconds. */
async function reaches(box: Sandbox, host: string, port: number): Promise<boolean> {
  const { exitCode } = await box.exec(["nc", "-w", "2", host, String(port), "-e", "true"], {
    timeout: "20s",
  });
  return exitCode === 0;
}

const addressOf = async (selector: string, namespace: string): Promise<string> =>
  await kubectl("-n", namespace, "get", "pods", "-l", selector, "-o", "jsonpath={.items[0].status.podIP}");

/** Of what a network may be, by the chart's values (values.yaml), what it adds to NATS. */
const MAY = [
  ["none", []],
  ["policy:open", ["outside"]],
  ["policy:metrics", ["pool"]],
] as const;

for (const [network, may] of MAY) {
  needing("node")(
    `a sandbox with network ${network} reaches NATS${["", ...may].join(" and ")}, and nothing else: API server, node, metadata, another sandbox`,
    async () => {
      await using box = await mesh.acquire({ image: IMAGES.busybox, network });
      await using other = await mesh.acquire({ image: IMAGES.busybox, network });
      await other.exec(["sh", "-c", "nc -l -p 7000 -e true & sleep 0.2"]);
      const pool = await addressOf("app.kubernetes.io/component=pool", INSTALLED.namespace);
      const neighbour = await addressOf(`sandmesh.dev/sandbox=${other.id}`, INSTALLED.sandboxes);
      const places: Record<string, [string, number]> = {
        nats: [INSTALLED.natsAddress, 4222],
        "API server's Service": ["10.92.0.1", 443],
        "API server": ["10.90.0.1", 6443],
        kubelet: ["10.90.0.1", 10250],
        metadata: ["169.254.169.254", 80],
        pool: [pool, 8080],
        neighbour: [neighbour, 7000],
        outside: [OUTSIDE, outside.port],
      };
      const reached = async () => {
        const found: string[] = [];
        for (const [what, [host, port]] of Object.entries(places))
          if (await reaches(box, host, port)) found.push(what);
        return found.sort();
      };
      const allowed = ["nats", ...may].sort();
      // The policies must have come to the node before what they forbid, or allow, means anything.
      await eventually(
        "the policies are in force",
        async () => (await reached()).join() === allowed.join(),
        60_000,
      ).catch(() => undefined);
      expect(await reached()).toEqual(allowed);
    },
  );
}
