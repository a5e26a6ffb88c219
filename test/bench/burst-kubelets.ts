// The kubelets' side of the burst: for each pod of a mesh that a fake node has brought to Running, the daemon that would
// be in it, with the pod's own bootstrap.   burst-kubelets.ts MESH
// Boot times: BOOT_MEDIAN_MS in the middle, log-normal (pool/provider/simulated/fate.ts).
import * as v from "valibot";
import { Bootstrap } from "../../broker/contract/index.ts";
import { openAccess } from "../../pool/provider/kubernetes/api/access.ts";
import { Transport } from "../../pool/provider/kubernetes/api/transport.ts";
import { FateSettings } from "../../pool/provider/simulated/fate.ts";
import { LocalWorld } from "../../pool/provider/simulated/world.ts";
import { BOOT_MEDIAN_MS } from "./burst-boot.ts";

const LONG_MS = 3600_000;
const Line = v.object({
  type: v.string(),
  object: v.object({
    metadata: v.object({ name: v.string(), deletionTimestamp: v.exactOptional(v.string()) }),
    spec: v.object({
      containers: v.array(
        v.object({
          env: v.optional(v.array(v.object({ name: v.string(), value: v.optional(v.string(), "") })), []),
        }),
      ),
    }),
    status: v.object({ phase: v.optional(v.string()) }),
  }),
});

const [mesh = ""] = process.argv.slice(2);
const world = new LocalWorld(v.parse(FateSettings, { bootMedianMs: BOOT_MEDIAN_MS }));
const transport = new Transport(openAccess(undefined, undefined), {
  maxRequests: 1,
  requestTimeoutMs: 30_000,
});
const booted = new Set<string>();
const stop = new AbortController();
process.once("SIGTERM", () => stop.abort());

async function heed(line: string): Promise<void> {
  const { type, object } = v.parse(Line, JSON.parse(line));
  const { name, deletionTimestamp } = object.metadata;
  if (type === "DELETED" || deletionTimestamp !== undefined) {
    await world.remove(name, undefined);
    return;
  }
  if (object.status.phase !== "Running" || booted.has(name)) return;
  booted.add(name);
  const text = object.spec.containers[0]?.env.find((each) => each.name === "SANDMESH_BOOTSTRAP")?.value;
  if (text === undefined) return;
  const bootstrap = v.parse(Bootstrap, JSON.parse(text));
  const { sandbox, tenant } = bootstrap;
  await world.create({ sandbox, tenant, bootstrap, maxLifeMs: LONG_MS }, stop.signal);
}

process.stdout.write("watching\n");
const path = `/api/v1/pods?labelSelector=${encodeURIComponent(`sandmesh.dev/mesh=${mesh}`)}&watch=1`;
try {
  for await (const line of transport.lines(path, stop.signal, LONG_MS)) if (line !== "") await heed(line);
} catch (error) {
  if (!stop.signal.aborted) throw error;
} finally {
  await world.end();
  process.exit(0);
}
