// `bash test/bench/burst [N [CLIENTS]]`: N sandboxes at once, by CLIENTS processes, on a real API server and scheduler.
// Between two bursts of plain pods (the floor), on the same machine; then all clients are killed.
//
// The wired floor (plain pods with the same daemons, no pool) is not measured: `ratio_plain` is against pods without any.
import { join } from "node:path";
import * as v from "valibot";
import { ClusterMesh } from "../e2e-cluster/mesh.ts";
import { percentile, progress, round } from "./bench.ts";
import { BOOT_MEDIAN_MS } from "./burst-boot.ts";
import { auditMark, plainBurst, writesSince } from "./burst-plain.ts";
import { lines } from "./lines.ts";

const [n = 500, clients = 8] = process.argv.slice(2).map(Number);
const LEASE_MS = 15_000;
/** Beyond the lease, until it is called a failure and not a figure. */
const ZERO_MS = 180_000;
const Acquired = v.object({
  granted: v.array(v.object({ sandbox: v.string(), at: v.number() })),
  lost: v.number(),
});

const bun = process.execPath;

function startClients(cluster: ClusterMesh) {
  return Array.from({ length: clients }, (_, i) => {
    const share = Math.floor(n / clients) + (i < n % clients ? 1 : 0);
    const child = Bun.spawn(
      [bun, join(import.meta.dir, "acquire-client.ts"), String(share), String(LEASE_MS)],
      {
        env: { ...process.env, SANDMESH_URL: cluster.server.url, SANDMESH_CREDS: cluster.credentials },
        stdio: ["pipe", "pipe", "inherit"],
      },
    );
    return { child, words: lines(child.stdout) };
  });
}

async function startKubelets(mesh: string) {
  const child = Bun.spawn([bun, join(import.meta.dir, "burst-kubelets.ts"), mesh], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  for await (const line of lines(child.stdout)) if (line === "watching") break;
  return child;
}

async function ourBurst() {
  const cluster = await ClusterMesh.start({
    pool: { maxBooting: n, bootTimeoutMs: 600_000 },
    kubernetes: {
      nodeSelector: { type: "kwok" },
      tolerations: [{ key: "kwok.x-k8s.io/node", operator: "Exists" }],
    },
  });
  const kubelets = await startKubelets(cluster.mesh);
  const all = startClients(cluster);
  try {
    await Promise.all(all.map(({ words }) => words.next()));
    const mark = auditMark();
    const began = Date.now();
    for (const { child } of all) {
      child.stdin.write("go\n");
      child.stdin.flush();
    }
    const reports = await Promise.all(
      all.map(async ({ words }) => v.parse(Acquired, JSON.parse((await words.next()).value ?? "{}"))),
    );
    const at = reports.flatMap(({ granted }) => granted.map((each) => (each.at - began) / 1000));
    const names = reports.flatMap(({ granted }) => granted.map(({ sandbox }) => sandbox));
    progress(`${at.length} usable after ${Math.max(...at)} s; killing the clients`);
    const killed = performance.now();
    for (const { child } of all) child.kill("SIGKILL");
    let left = await cluster.podsLeft();
    while (left.length > 0 && performance.now() - killed < LEASE_MS + ZERO_MS) {
      await Bun.sleep(500);
      left = await cluster.podsLeft();
    }
    const zeroS = (performance.now() - killed) / 1000;
    const writes = writesSince(mark);
    progress(JSON.stringify(writes.byWhat));
    return {
      half_s: round(percentile(at, 0.5), 2),
      all_s: round(Math.max(...at), 2),
      writes_ours_per_sandbox: round(writes.ours / n, 2),
      writes_all_per_sandbox: round(writes.all / n, 2),
      lost: reports.reduce((sum, { lost }) => sum + lost, 0),
      double: names.length - new Set(names).size,
      left: left.length,
      lease_s: LEASE_MS / 1000,
      zero_after_kill_s: round(zeroS, 2),
    };
  } finally {
    for (const { child } of all) child.kill("SIGKILL");
    kubelets.kill("SIGTERM");
    await Promise.all([...all.map(({ child }) => child.exited), kubelets.exited]);
    await cluster[Symbol.asyncDispose]();
  }
}

const before = await plainBurst(n);
progress(`plain: ${round(before.allS, 2)} s`);
const ours = await ourBurst();
const after = await plainBurst(n);
const floor = (before.allS + after.allS) / 2;
const result = {
  n,
  clients,
  placement: "scheduler",
  boot_median_ms: BOOT_MEDIAN_MS,
  floor_all_s: round(floor, 2),
  floors_s: [round(before.allS, 2), round(after.allS, 2)],
  ratio_plain: round(ours.all_s / floor, 2),
  ...ours,
};
process.stdout.write(`${JSON.stringify(result)}\n`);
if (ours.lost + ours.double + ours.left > 0) process.exitCode = 1;
