// A soak of the transport to the API server: N creates (as dry runs: all but the write) at real concurrency beside a
// watch. At the end a real pod is made and removed, of which the watch must tell: it may have died without a word.
//
//   bash test/cluster/enter bun test/bench/kubernetes-transport.ts [--n 20000] [--at-once 32]
import { randomName } from "../../broker/contract/index.ts";
import { openAccess } from "../../pool/provider/kubernetes/api/access.ts";
import { Transport } from "../../pool/provider/kubernetes/api/transport.ts";
import { numberFlag, percentile, progress, round } from "./bench.ts";

const n = numberFlag("--n", 20_000);
const atOnce = numberFlag("--at-once", 32);
const PATH = "/api/v1/namespaces/default/pods";
const SILENT_MS = 86_400_000;
const TOLD_MS = 10_000;
/** About what a sandbox's bootstrap takes. */
const ENV = "x".repeat(1500);

const name = `soak-${randomName(8)}`;
const podOf = (pod: string) => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name: pod, labels: { "sandmesh.dev/burst": name } },
  spec: {
    nodeSelector: { "sandmesh.dev/nowhere": "true" },
    containers: [{ name: "sandbox", image: "none", env: [{ name: "BOOTSTRAP", value: ENV }] }],
  },
});

const transport = new Transport(openAccess(undefined, undefined), {
  maxRequests: atOnce,
  requestTimeoutMs: 30_000,
});
const stop = new AbortController();
const told: string[] = [];
const watching = (async () => {
  const path = `${PATH}?watch=1&allowWatchBookmarks=true`;
  for await (const line of transport.watch({ path }, stop.signal, SILENT_MS)) told.push(String(line));
})().catch((error: unknown) => {
  if (!stop.signal.aborted) throw error;
});

const took: number[] = [];
/** Answers that were none of 201, by status and reason. */
const refused: Record<string, number> = {};
let begun = 0;
const signal = AbortSignal.timeout(3600_000);
async function worker(): Promise<void> {
  while (begun < n) {
    begun++;
    const began = performance.now();
    const path = `${PATH}?dryRun=All`;
    const one = podOf(`${name}-${randomName(8)}`);
    const { status, body: said } = await transport.request({ method: "POST", path, body: one }, signal, true);
    if (status === 201) took.push(performance.now() - began);
    else {
      const why = `${status} ${JSON.stringify(said).slice(0, 200)}`;
      refused[why] = (refused[why] ?? 0) + 1;
    }
    if (took.length > 0 && took.length % 5000 === 0) progress(`${took.length}/${n}`);
  }
}

const cpu = process.cpuUsage();
const began = performance.now();
await Promise.all(Array.from({ length: atOnce }, worker));
const seconds = (performance.now() - began) / 1000;
const { user, system } = process.cpuUsage(cpu);
await transport.request({ method: "POST", path: PATH, body: podOf(name) }, signal, true);
await transport.request({ method: "DELETE", path: `${PATH}/${name}` }, signal, true);
const until = performance.now() + TOLD_MS;
const alive = () => told.some((line) => line.startsWith('{"type":"DELETED"') && line.includes(name));
while (!alive() && performance.now() < until) await Bun.sleep(20);
const result = {
  n: took.length,
  at_once: atOnce,
  s: round(seconds, 1),
  per_s: Math.round(took.length / seconds),
  p50_ms: round(percentile(took, 0.5), 1),
  p99_ms: round(percentile(took, 0.99), 1),
  max_ms: round(Math.max(...took), 0),
  cpu_s: round((user + system) / 1e6, 1),
  refused,
  ...transport.counters,
  watch_alive: alive(),
};
stop.abort();
await watching;
transport.close();
process.stdout.write(`${JSON.stringify(result)}\n`);
if (Object.keys(refused).length > 0 || !result.watch_alive || transport.counters.failed > 0)
  process.exitCode = 1;
