// What a sandbox's connection costs nats-server: memory and CPU, with and without TLS, each with the credential and the two
// subscriptions of a daemon. For deploy/CAPACITY.md.
//
//   bun test/bench/connections.ts [--n 2000]      prints one line of JSON
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { connect } from "../../broker/link/connect.ts";
import { testServer } from "../../broker/server/testing.ts";
import { makeServerCertificate } from "../../deploy/kubernetes/certificates.ts";

const TICKS_PER_S = 100;
/** At once; as a paced burst opens them. */
const AT_ONCE = 32;

const rssKb = (pid: number): number =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]);

function cpuMs(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8")
    .replace(/^.*\) /s, "")
    .split(" ");
  return ((Number(fields[11]) + Number(fields[12])) * 1000) / TICKS_PER_S;
}

async function measure(
  count: number,
  ca: string | undefined,
  files: { certFile: string; keyFile: string } | undefined,
) {
  await using server = await testServer(files === undefined ? {} : { tls: files });
  const { pid } = server.server;
  const before = { rss: rssKb(pid), cpu: cpuMs(pid) };
  const ids = Array.from({ length: count }, (_, i) => `sb-${i}`);
  const open = async (): Promise<void> => {
    for (let id = ids.pop(); id !== undefined; id = ids.pop()) {
      const credentials = server.sandboxCredentials("default", id);
      const link = await connect({
        urls: [server.url],
        credentials: () => credentials,
        ...(ca === undefined ? {} : { ca }),
        name: id,
        connectTimeoutMs: 30_000,
      });
      for (const kind of ["sbx", "ctl"]) link.subscribe(`${kind}.v1.default.${id}.*`, () => undefined);
      await link.flush();
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, open));
  return {
    kb: Math.round((rssKb(pid) - before.rss) / count),
    cpu_ms: Number(((cpuMs(pid) - before.cpu) / count).toFixed(2)),
  };
}

const { values } = parseArgs({ options: { n: { type: "string" }, json: { type: "boolean" } } });
const count = Number(values.n ?? 2000);
const folder = mkdtempSync(join(tmpdir(), "sandmesh-connections-"));
try {
  const { ca, certificate, key } = makeServerCertificate(folder, ["127.0.0.1"]);
  const files = { certFile: join(folder, "tls.crt"), keyFile: join(folder, "tls.key") };
  writeFileSync(files.certFile, certificate);
  writeFileSync(files.keyFile, key, { mode: 0o600 });
  const plain = await measure(count, undefined, undefined);
  const tls = await measure(count, ca, files);
  process.stdout.write(`${JSON.stringify({ n: count, plain, tls })}\n`);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
