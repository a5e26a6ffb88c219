// For tests in other languages: a nats-server and a pool in this process, told what to do by JSON lines on stdin. Ends,
// with all that it started, when stdin does. The first line it prints is `{"url", "credentials"}`; each order is
// answered by a line.
//
//   bun test/python-mesh.ts double      sandboxes that are leased and released as told, and execute nothing
//   bun test/python-mesh.ts simulated   virtual sandboxes
//   bun test/python-mesh.ts local       real ones; needs root
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import * as v from "valibot";
import { buildDaemon } from "../agent/build.ts";
import { formatCreds } from "../broker/credentials/index.ts";
import { type TestServer, testServer } from "../broker/server/testing.ts";
import { createLocalProvider, type LocalProvider } from "../pool/provider/local/index.ts";
import type { Provider } from "../pool/provider/provider.ts";
import { createSimulatedProvider } from "../pool/provider/simulated/index.ts";
import { startPool } from "../pool/service/pool.ts";
import { QUICK, SHORT } from "../pool/testing/mesh.ts";
import { ProviderDouble } from "../pool/testing/provider.ts";
import { MemoryRecords } from "../pool/testing/store.ts";

const TENANT = "acme";

const Order = v.variant("do", [
  /** What the provider has. */
  v.object({ do: v.literal("made") }),
  /** What the provider's next sandboxes do. */
  v.object({
    do: v.literal("script"),
    create: v.optional(v.picklist(["ok", "wait", "fail"])),
    boot: v.optional(v.picklist(["ready", "never"])),
    /** How often its removal fails first. */
    remove_failures: v.optional(v.number()),
  }),
  v.object({ do: v.literal("proceed") }),
  v.object({ do: v.literal("kill_server") }),
  v.object({ do: v.literal("restart_server") }),
  /** A credential for a sandbox that the test itself plays. */
  v.object({ do: v.literal("sandbox_credentials"), sandbox: v.string() }),
  v.object({
    do: v.literal("user_credentials"),
    user: v.string(),
    tenant: v.optional(v.string(), TENANT),
    ttl_ms: v.exactOptional(v.number()),
  }),
  v.object({ do: v.literal("operator_credentials") }),
  v.object({ do: v.literal("observer_credentials") }),
  /** What the pool says. */
  v.object({ do: v.literal("publish"), subject: v.string(), text: v.string() }),
  v.object({
    do: v.literal("publish_all"),
    messages: v.array(v.object({ subject: v.string(), text: v.string() })),
  }),
]);
type Order = v.InferOutput<typeof Order>;

interface Mesh {
  server: TestServer;
  provider: Provider;
}

const KINDS = ["double", "simulated", "local"] as const;

function providerOf(
  kind: (typeof KINDS)[number],
  folder: string,
  server: TestServer,
): Promise<Provider> | Provider {
  if (kind === "double") return new ProviderDouble();
  if (kind === "simulated") return createSimulatedProvider({});
  return createLocalProvider({
    stateDir: folder,
    daemonDir: buildDaemon(),
    natsUrl: server.url,
    log: { info: () => undefined, warn: (facts, message) => console.error(message, facts) },
  });
}

async function obey({ server, provider }: Mesh, order: Order): Promise<Record<string, unknown>> {
  const double = provider instanceof ProviderDouble ? provider : undefined;
  switch (order.do) {
    case "made":
      return { made: (await provider.list(AbortSignal.timeout(10_000))).map((each) => each.sandbox) };
    case "script":
      if (double === undefined) throw new Error("only a double does as it is told");
      double.script = () => ({
        ...(order.create !== undefined && { create: order.create }),
        ...(order.boot !== undefined && { boot: order.boot }),
        ...(order.remove_failures !== undefined && { removeFailures: order.remove_failures }),
      });
      return {};
    case "proceed":
      double?.proceed();
      return {};
    case "kill_server":
      await server.kill();
      return {};
    case "restart_server":
      await server.restart();
      return {};
    case "sandbox_credentials":
      return { credentials: formatCreds(server.sandboxCredentials(TENANT, order.sandbox)) };
    case "user_credentials": {
      const { tenant, user, ttl_ms } = order;
      const ttl = ttl_ms === undefined ? {} : { ttlMs: ttl_ms };
      return { credentials: formatCreds(server.keys.mintUser({ tenant, user, ...ttl })) };
    }
    case "operator_credentials":
      return { credentials: formatCreds(server.keys.mintOperator({ tenant: TENANT, user: "root" })) };
    case "observer_credentials":
      return { credentials: formatCreds(server.keys.mintObserver({ tenant: TENANT })) };
    case "publish":
    case "publish_all": {
      const link = await server.pool();
      for (const { subject, text } of order.do === "publish" ? [order] : order.messages)
        link.publish(subject, Buffer.from(text));
      await link.flush();
      return {};
    }
  }
}

async function serve(kind: (typeof KINDS)[number], folder: string): Promise<void> {
  await using server = await testServer();
  const provider = await providerOf(kind, folder, server);
  const pool = await startPool({
    link: await server.pool({ reconnect: QUICK }),
    store: new MemoryRecords().open(),
    minter: server.keys,
    providers: [provider],
    daemonUrls: [server.url],
    limits: SHORT,
  });
  try {
    const credentials = join(folder, "user.creds");
    writeFileSync(credentials, formatCreds(server.keys.mintUser({ tenant: TENANT, user: "ann" })), {
      mode: 0o600,
    });
    const say = (line: object) => process.stdout.write(`${JSON.stringify(line)}\n`);
    say({ url: server.url, credentials });
    for await (const line of createInterface({ input: process.stdin })) {
      try {
        say(await obey({ server, provider }, v.parse(Order, JSON.parse(line))));
      } catch (error) {
        say({ error: error instanceof Error ? error.message : String(error) });
      }
    }
  } finally {
    await endSandboxes(provider);
    await pool.close();
  }
}

const ends = (provider: Provider): provider is LocalProvider | ProviderDouble => "end" in provider;

async function endSandboxes(provider: Provider): Promise<void> {
  const signal = AbortSignal.timeout(20_000);
  // One by one would leave the mesh's own cgroups.
  if (ends(provider)) return provider.end(signal);
  for (const { sandbox } of await provider.list(signal)) await provider.remove(sandbox, undefined, signal);
}

if (import.meta.main) {
  // Not below /tmp, which a sandbox of image `host` has anew.
  const folder = mkdtempSync(join(process.argv[2] === "local" ? "/var/tmp" : tmpdir(), "sandmesh-python-"));
  try {
    await serve(v.parse(v.picklist(KINDS), process.argv[2] ?? "double"), folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
  // All that was started has ended; what is left is a timer of a signal that nobody waits for any more.
  process.exit(0);
}
