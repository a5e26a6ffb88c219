// `bench acquire`: bursts from many client processes against the real pool, with simulated sandboxes that speak the
// real protocol over real connections.
//
// `--rounds` acquires and releases all so many times over, to see what stays in the pool's memory; the figures are the
// first round's. `--kill` ends all clients by SIGKILL instead of a release, and waits until nothing is left.
import type { Mesh } from "../../sdk/typescript/mod.ts";
import { bench, benchFlags, percentile, progress, round } from "./bench.ts";
import { CLIENT, Clients } from "./clients.ts";
import { type MeshPids, meshPids, usageOf } from "./processes.ts";

interface Flags {
  n: number;
  clients: number;
  hosts: number;
  rounds: number;
  leaseMs: number;
  kill?: boolean;
}
const { n, clients, hosts, rounds, leaseMs, kill = false } = benchFlags<Flags>("acquire");
/** Beyond the lease, until it is called a failure and not a figure. */
const ZERO_MS = 120_000;
const TELL_MS = 5_000;

/** What is left, by the pool's records and by the provider's own list. */
async function left(mesh: Mesh): Promise<number> {
  const { states, providers, queued } = await mesh.status();
  const alive = Object.entries(states).filter(([state]) => state !== "gone");
  const known = alive.reduce((sum, [, count]) => sum + (count ?? 0), queued);
  const there = providers.reduce((sum, each) => sum + each.sandboxes, 0);
  return Math.max(known, there);
}

/** Says now and then how far a burst is, until it is disposed of. So seldom that it costs the pool next to nothing. */
function telling(mesh: Mesh): Disposable {
  const timer = setInterval(() => {
    const tell = ({ states }: { states: Readonly<Record<string, number | undefined>> }) =>
      progress(`${states.leased ?? 0}/${n} leased`);
    // Only told: what the pool does not answer here the burst itself finds out.
    mesh.status().then(tell, () => {});
  }, TELL_MS);
  return { [Symbol.dispose]: () => clearInterval(timer) };
}

async function acquireAll(all: Clients, pids: MeshPids, mesh: Mesh) {
  const before = { pool: usageOf(pids.pool), nats: usageOf(pids.nats), clients: usageOf(all.pids) };
  const hostsBefore = usageOf(pids.hosts);
  using _ = telling(mesh);
  const began = Date.now();
  const reports = await all.acquire();
  const pool = usageOf(pids.pool);
  const at = reports.flatMap((report) => report.granted.map((grant) => (grant.at - began) / 1000));
  const names = reports.flatMap((report) => report.granted.map((grant) => grant.sandbox));
  const allS = Math.max(...at);
  return {
    half_s: round(percentile(at, 0.5), 2),
    all_s: round(allS, 2),
    per_s: Math.round(at.length / allS),
    lost: reports.reduce((sum, report) => sum + report.lost, 0),
    double: names.length - new Set(names).size,
    pool_cpu_s: round(pool.cpuS - before.pool.cpuS, 2),
    hosts_cpu_s: round(usageOf(pids.hosts).cpuS - hostsBefore.cpuS, 2),
    nats_cpu_s: round(usageOf(pids.nats).cpuS - before.nats.cpuS, 2),
    clients_cpu_s: round(usageOf(all.pids).cpuS - before.clients.cpuS, 2),
    pool_rss_mb: Math.round(pool.rssMb),
  };
}

async function releaseAll(all: Clients, pids: MeshPids) {
  const before = usageOf(pids.pool);
  const hostsBefore = usageOf(pids.hosts);
  const natsBefore = usageOf(pids.nats);
  const began = performance.now();
  await all.release();
  const after = usageOf(pids.pool);
  return {
    release_s: round((performance.now() - began) / 1000, 2),
    release_pool_cpu_s: round(after.cpuS - before.cpuS, 2),
    release_hosts_cpu_s: round(usageOf(pids.hosts).cpuS - hostsBefore.cpuS, 2),
    release_nats_cpu_s: round(usageOf(pids.nats).cpuS - natsBefore.cpuS, 2),
    pool_rss_after_mb: Math.round(after.rssMb),
  };
}

/** Ends all clients at once without a word; how long until nothing is left. */
async function killAll(all: Clients, pids: MeshPids, mesh: Mesh) {
  const before = usageOf(pids.pool);
  const began = performance.now();
  all.kill();
  // Renewed at a third of it, no lease ends earlier; to ask meanwhile would only list thousands again and again.
  await Bun.sleep(leaseMs * 0.6);
  while ((await left(mesh)) > 0) {
    if (performance.now() - began > leaseMs + ZERO_MS) throw new Error(`${await left(mesh)} are left`);
    await Bun.sleep(250);
  }
  const after = usageOf(pids.pool);
  return {
    lease_s: leaseMs / 1000,
    zero_after_kill_s: round((performance.now() - began) / 1000, 2),
    release_pool_cpu_s: round(after.cpuS - before.cpuS, 2),
    pool_rss_after_mb: Math.round(after.rssMb),
  };
}

async function inOrder(all: Clients): Promise<void> {
  all.end();
  const codes = await all.exited();
  if (codes.some((code) => code !== 0)) throw new Error(`clients ended with ${codes.join(", ")}`);
}

const options = { providers: ["simulated" as const], simulated: { hosts } };
await bench(options, async ({ mesh, home, url, credentials }) => {
  const all = new Clients({ n, clients, leaseMs, url, credentials, script: CLIENT });
  try {
    await all.connected();
    const pids = meshPids(home);
    const results: { pool_rss_after_mb: number }[] = [];
    for (let i = 0; i < rounds; i++) {
      const acquired = await acquireAll(all, pids, mesh);
      progress(`${n - acquired.lost} usable after ${acquired.all_s} s; ${kill ? "killing" : "releasing"}`);
      const released = kill ? await killAll(all, pids, mesh) : await releaseAll(all, pids);
      const result = { n, clients, hosts, ...acquired, left: await left(mesh), ...released };
      progress(JSON.stringify(result));
      results.push(result);
      if (kill) break;
    }
    if (!kill) await inOrder(all);
    const [first] = results;
    const rssOf = results.map((each) => each.pool_rss_after_mb);
    return { ...first, ...(rounds > 1 ? { pool_rss_rounds_mb: rssOf } : {}) };
  } finally {
    all.kill();
  }
});
