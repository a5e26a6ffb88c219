// What the fake nodes lack: when KWOK has brought a pod to Running, its daemon is started here, simulated, with the
// pod's own bootstrap.   burst-kubelets.ts MESH
import * as v from "valibot";
import { Bootstrap } from "../../broker/contract/index.ts";
import { FateSettings } from "../../pool/provider/simulated/fate.ts";
import { LocalWorld } from "../../pool/provider/simulated/world.ts";
import { BOOT } from "./burst-boot.ts";
import { openApi, type Pod, watchPods } from "./burst-pods.ts";

const LONG_MS = 3600_000;
const [mesh = ""] = process.argv.slice(2);
const world = new LocalWorld(v.parse(FateSettings, BOOT));
const booted = new Set<string>();
const stop = new AbortController();
const stopped = new Promise<void>((resolve) => process.once("SIGTERM", resolve));

async function heed(type: "seen" | "gone", pod: Pod): Promise<void> {
  const { name, deletionTimestamp } = pod.metadata;
  if (type === "gone" || deletionTimestamp !== undefined) {
    await world.remove(name, undefined);
    return;
  }
  if (pod.status.phase !== "Running" || booted.has(name)) return;
  booted.add(name);
  const text = pod.spec.containers[0]?.env.find((each) => each.name === "SANDMESH_BOOTSTRAP")?.value;
  if (text === undefined) return;
  const bootstrap = v.parse(Bootstrap, JSON.parse(text));
  const { sandbox, tenant } = bootstrap;
  await world.create({ sandbox, tenant, bootstrap, maxLifeMs: LONG_MS }, stop.signal);
}

const api = openApi();
const watch = await watchPods(api, `sandmesh.dev/mesh=${mesh}`, (type, pod) => void heed(type, pod));
process.stdout.write("watching\n");
try {
  await Promise.race([stopped, watch.failed]);
} finally {
  stop.abort();
  await watch.stop();
  api.close();
  await Promise.race([world.end(), Bun.sleep(10_000)]);
  process.exit();
}
