// The burst by the pool: N sandboxes at once for CLIENTS processes, until each has run a no-op. Then the clients are
// killed, or they leave orderly. Twice: the first burst of pool and clients that have just started and connected, and, all
// released, one more by the same.
import { join } from "node:path";
import { randomName } from "../../broker/contract/index.ts";
import { bundle } from "../../sdk/typescript/build.ts";
import { percentile, progress, round } from "./bench.ts";
import { countWrites, meter, POOL_KUBECONFIG, POOL_USER } from "./burst-account.ts";
import { kubectl } from "./burst-kubectl.ts";
import { type Kubelets, startKubelets } from "./burst-kubelets-start.ts";
import { BurstMesh } from "./burst-mesh.ts";
import { nonePods, openApi, podsLeft } from "./burst-pods.ts";
import { inTime } from "./burst-wait.ts";
import { CLIENT, Clients } from "./clients.ts";

export interface BurstOptions {
  n: number;
  clients: number;
  placement: "scheduler" | "direct";
  /** No second burst. */
  once: boolean;
  /** How the clients end. */
  end: "kill" | "exit";
}

const LEASE_MS = 15_000;
const START_MS = 60_000;
/** Until it is called a failure and not a figure. */
const patienceMs = (n: number): number => 120_000 + n * 200;

const NODES_LABEL = "sandmesh.dev/placement=direct";

/** The pool's user may do what the provider needs, and nothing else. */
async function allowPool({ placement }: BurstOptions): Promise<() => Promise<void>> {
  const name = `burst-${randomName(6)}`;
  const pods = ["--verb=create,delete,deletecollection,get,list,watch", "--resource=pods"];
  await kubectl("create", "role", name, ...pods);
  await kubectl("create", "rolebinding", name, `--role=${name}`, `--user=${POOL_USER}`);
  const made = [`rolebinding/${name}`, `role/${name}`];
  if (placement === "direct") {
    await kubectl("label", "--overwrite", "nodes", "-l", "type=kwok", NODES_LABEL);
    await kubectl("create", "clusterrole", name, "--verb=list,watch", "--resource=nodes");
    await kubectl("create", "clusterrolebinding", name, `--clusterrole=${name}`, `--user=${POOL_USER}`);
    made.push(`clusterrolebinding/${name}`, `clusterrole/${name}`);
  }
  return async () => void (await kubectl("delete", ...made));
}

const startMesh = ({ n, placement }: BurstOptions): Promise<BurstMesh> =>
  BurstMesh.start({
    pool: { maxBooting: n, bootTimeoutMs: 1_800_000 },
    kubernetes: {
      placement,
      directNodes: NODES_LABEL,
      kubeconfig: POOL_KUBECONFIG,
      nodeSelector: { type: "kwok" },
      tolerations: [{ key: "kwok.x-k8s.io/node", operator: "Exists" }],
    },
  });

/** As whoever has the built package runs it. */
const buildClient = (): Promise<string> => bundle(CLIENT, join(import.meta.dir, "../../dist/burst-client"));

const startClients = async ({ n, clients }: BurstOptions, cluster: BurstMesh): Promise<Clients> =>
  new Clients({
    n,
    clients,
    leaseMs: LEASE_MS,
    url: cluster.server.url,
    credentials: cluster.credentials,
    script: await buildClient(),
  });

async function endClients(all: Clients, how: BurstOptions["end"], withinMs: number): Promise<void> {
  if (how === "kill") all.kill();
  else all.end();
  await inTime("the clients to end", withinMs, all.exited());
}

export async function ourBurst(options: BurstOptions) {
  const disallow = await allowPool(options);
  let cluster: BurstMesh | undefined;
  let kubelets: Kubelets | undefined;
  let clients: Clients | undefined;
  try {
    cluster = await startMesh(options);
    kubelets = await startKubelets(cluster.mesh);
    clients = await startClients(options, cluster);
    await inTime("the clients to connect", START_MS, clients.connected());
    return await measured(options, cluster, kubelets, clients);
  } finally {
    if (clients !== undefined) await endClients(clients, "kill", START_MS);
    await cluster?.end();
    await kubelets?.stop();
    await disallow();
  }
}

/** One burst: times, CPU, and what was granted. */
async function acquired({ n }: BurstOptions, cluster: BurstMesh, kubelets: Kubelets, clients: Clients) {
  const spent = meter({
    pool: [cluster.poolPid],
    nats: [cluster.server.pid],
    daemons: [kubelets.pid],
    clients: clients.pids,
  });
  const began = Date.now();
  const all = inTime("all clients to have all their sandboxes", patienceMs(n), clients.acquire());
  const reports = await Promise.race([all, kubelets.failed]);
  const cpu = spent();
  const at = reports.flatMap(({ granted }) => granted.map((each) => (each.at - began) / 1000));
  progress(`  ${at.length} usable after ${round(Math.max(...at), 2)} s`);
  return {
    half_s: round(percentile(at, 0.5), 2),
    all_s: round(Math.max(...at), 2),
    cpu,
    names: reports.flatMap(({ granted }) => granted.map(({ sandbox }) => sandbox)),
    lost: reports.reduce((sum, { lost }) => sum + lost, 0),
  };
}

async function measured(options: BurstOptions, cluster: BurstMesh, kubelets: Kubelets, clients: Clients) {
  const { n, end, once } = options;
  const writes = await countWrites();
  const first = await acquired(options, cluster, kubelets, clients);
  const bursts = [first];
  if (!once) {
    await inTime("all clients to have released their sandboxes", patienceMs(n), clients.release());
    bursts.push(await acquired(options, cluster, kubelets, clients));
  }
  progress(`  the clients ${end}`);
  const ended = await endOf(options, cluster, kubelets, clients);
  const { ours, all, byVerb, byUser } = await writes();
  progress(`  writes, by the metrics: ${JSON.stringify(byVerb)}`);
  progress(`  writes, by the audit log: ${JSON.stringify(byUser)}`);
  const [, again] = bursts;
  const names = bursts.flatMap((each) => each.names);
  return {
    half_s: first.half_s,
    all_s: first.all_s,
    lost: bursts.reduce((sum, { lost }) => sum + lost, 0),
    double: names.length - new Set(names).size,
    ...ended,
    writes_ours_per_sandbox: round(ours / (bursts.length * n), 2),
    writes_all_per_sandbox: round(all / (bursts.length * n), 2),
    cpu: first.cpu,
    again: again && { allS: again.all_s, cpu: again.cpu },
  };
}

/** `left`: pods that nothing removes. `left_at_exit`: pods that are there when the last client has returned. */
async function endOf(
  { n, end: how }: BurstOptions,
  cluster: BurstMesh,
  kubelets: Kubelets,
  clients: Clients,
) {
  const api = openApi();
  const { selector } = cluster;
  try {
    const spent = meter({ pool: [cluster.poolPid], nats: [cluster.server.pid], daemons: [kubelets.pid] });
    const began = performance.now();
    await endClients(clients, how, patienceMs(n));
    const atExit = how === "exit" ? await podsLeft(api, selector) : undefined;
    await nonePods(api, selector, LEASE_MS + patienceMs(n)).catch((error: unknown) =>
      progress(String(error)),
    );
    const seconds = round((performance.now() - began) / 1000, 2);
    const end_cpu = spent();
    return {
      end_cpu,
      left: await podsLeft(api, selector),
      left_at_exit: atExit,
      zero_after_kill_s: how === "kill" ? seconds : undefined,
      exit_s: how === "exit" ? seconds : undefined,
    };
  } finally {
    api.close();
  }
}
