// `bench acquire`: a burst from many client processes against the real pool, with simulated sandboxes that speak the
// real protocol over real connections.
//
//   bun test/bench/acquire.ts [--n 10000] [--clients 8]
import { readFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { bench, numberFlag, percentile, progress, round } from "./bench.ts";

const Client = v.object({
  granted: v.array(v.object({ sandbox: v.string(), at: v.number() })),
  lost: v.number(),
});

/** CPU seconds and resident MB of a process, from /proc. */
function usageOf(pid: number): { cpuS: number; rssMb: number } {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const ticks = Number(fields[11]) + Number(fields[12]);
  const rss = /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1];
  return { cpuS: ticks / 100, rssMb: Number(rss ?? 0) / 1024 };
}

function poolPid(home: string): number {
  const marker = join(home, "pool", "config.json");
  for (const line of Bun.spawnSync(["ps", "-eo", "pid,args"]).stdout.toString().split("\n")) {
    if (line.includes("pool/main.ts") && line.includes(marker) && !line.includes("setpriv"))
      return Number.parseInt(line, 10);
  }
  throw new Error("the pool's process was not found");
}

const n = numberFlag("--n", 10_000);
const clients = numberFlag("--clients", 8);

await bench({ providers: ["simulated"] }, async ({ mesh, home, url, credentials }) => {
  const pid = poolPid(home);
  const script = join(import.meta.dir, "acquire-client.ts");
  const processes = Array.from({ length: clients }, (_, i) =>
    Bun.spawn([process.execPath, script, String(Math.floor(n / clients) + (i < n % clients ? 1 : 0))], {
      env: { ...process.env, SANDMESH_URL: url, SANDMESH_CREDS: credentials },
      stdio: ["pipe", "pipe", "inherit"],
    }),
  );
  // All are connected before any begins.
  const readers = processes.map((client) => lines(client.stdout));
  await Promise.all(readers.map((reader) => reader.next()));
  const before = usageOf(pid);
  const began = Date.now();
  for (const client of processes) {
    client.stdin.write("go\n");
    client.stdin.flush();
  }
  const reports = await Promise.all(
    readers.map(async (reader) => v.parse(Client, JSON.parse((await reader.next()).value ?? "{}"))),
  );
  const after = usageOf(pid);
  const at = reports.flatMap((report) => report.granted.map((grant) => (grant.at - began) / 1000));
  const names = reports.flatMap((report) => report.granted.map((grant) => grant.sandbox));
  const allS = Math.max(...at);
  progress(`${at.length} usable after ${round(allS, 1)} s; releasing`);
  for (const client of processes) client.stdin.end();
  const codes = await Promise.all(processes.map((client) => client.exited));
  if (codes.some((code) => code !== 0)) throw new Error(`clients ended with ${codes.join(", ")}`);
  const left = (await mesh.list()).length;
  const provider = (await mesh.status()).providers.reduce((sum, each) => sum + each.sandboxes, 0);
  return {
    n,
    clients,
    half_s: round(percentile(at, 0.5), 2),
    all_s: round(allS, 2),
    per_s: Math.round(at.length / allS),
    lost: reports.reduce((sum, report) => sum + report.lost, 0),
    double: names.length - new Set(names).size,
    left: Math.max(left, provider),
    pool_cpu_s: round(after.cpuS - before.cpuS, 2),
    pool_rss_mb: Math.round(after.rssMb),
  };
});

async function* lines(stream: ReadableStream<Uint8Array>): AsyncGenerator<string, undefined, undefined> {
  let text = "";
  for await (const part of stream) {
    text += Buffer.from(part).toString("utf8");
    for (let end = text.indexOf("\n"); end >= 0; end = text.indexOf("\n")) {
      yield text.slice(0, end);
      text = text.slice(end + 1);
    }
  }
}
