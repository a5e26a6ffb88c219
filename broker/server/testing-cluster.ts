// For tests: three real nats-servers on loopback that keep JetStream's records together.
//
//   await using cluster = await testCluster();
//   const link = await cluster.nodes[0].pool({ urls: cluster.urls });
import { copyFile, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { decode } from "../contract/index.ts";
import type { Link } from "../link/link.ts";
import { type TestServer, testServer, until } from "./testing.ts";

export interface TestCluster extends AsyncDisposable {
  readonly nodes: readonly TestServer[];
  readonly urls: readonly string[];
  /** The node that leads a stream; asked over `pool`, a link with the pool's credential. */
  leaderOf(stream: string, pool: Link): Promise<TestServer>;
}

/** Below those that kernels give to whoever asks for any, or connects: a node's stays free also from when it is let go of
 * until the node listens, and while the node is away. */
const PORTS = { from: 20_000, count: 10_000 };

/** Ports that are held until they are used, since routes must name each other before any of them listens. */
export function holdPorts(count: number): { port: number; free(): void }[] {
  return Array.from({ length: count }, () => {
    for (let tries = 100; ; tries--) {
      const port = PORTS.from + Math.floor(Math.random() * PORTS.count);
      try {
        const listener = Bun.listen({ hostname: "127.0.0.1", port, socket: { data() {} } });
        return { port, free: () => listener.stop(true) };
      } catch (error) {
        if (tries === 0) throw error;
      }
    }
  });
}

/** Nobody listens there: who hears of a server from another one is not to go round the given ways. */
const NOWHERE = "127.0.0.1:1";

export interface ClusterOptions {
  size?: number;
  /** The port by which node `from` calls node `to`, which listens on `port`; default that itself. */
  way?: (from: number, to: number, port: number) => Promise<number>;
}

async function routesFrom(from: number, ports: readonly number[], { way }: ClusterOptions) {
  if (way === undefined) return { ports };
  const others = ports.map((port, to) => ({ port, to })).filter(({ to }) => to !== from);
  const called = await Promise.all(others.map(({ port, to }) => way(from, to, port)));
  return { ports: called, advertise: NOWHERE };
}

export async function testCluster(options: ClusterOptions = {}): Promise<TestCluster> {
  const { size = 3 } = options;
  const folder = await mkdtemp(join(tmpdir(), "sandmesh-cluster-"));
  const held = holdPorts(size);
  const ports = held.map(({ port }) => port);
  const nodes: TestServer[] = [];
  const close = async (): Promise<void> => {
    for (const { free } of held) free();
    await Promise.all(nodes.map((node) => node.close()));
    await rm(folder, { recursive: true, force: true });
  };
  try {
    const keys = await testServer();
    await using _ = keys;
    for (const [i, port] of ports.entries()) {
      const stateDir = await mkdtemp(join(folder, `node-${i}-`));
      // One operator and one account: a credential is good at each of them.
      await copyFile(join(keys.stateDir, "keys.json"), join(stateDir, "keys.json"));
      held[i]?.free();
      const routes = await routesFrom(i, ports, options);
      nodes.push(await testServer({ stateDir, cluster: { name: `node-${i}`, port, ...routes } }));
    }
  } catch (error) {
    await close();
    throw error;
  }
  let asked = 0;
  const nameOfLeader = (stream: string, pool: Link): Promise<string | undefined> =>
    new Promise((resolve) => {
      const reply = `inb.v1.pool.cluster${++asked}`;
      const answered = pool.subscribe(reply, ({ data }) => {
        answered.unsubscribe();
        const { cluster } = decode(data) as { cluster?: { leader?: string } };
        resolve(cluster?.leader);
      });
      setTimeout(() => resolve(undefined), 1_000);
      pool.publish(`$JS.API.STREAM.INFO.${stream}`, new Uint8Array(0), { reply });
    });
  return {
    nodes,
    get urls() {
      return nodes.map(({ url }) => url);
    },
    leaderOf: (stream, pool) =>
      until(
        `a leader of ${stream}`,
        async () => {
          const name = await nameOfLeader(stream, pool);
          return name === undefined ? undefined : nodes[Number(name.slice("node-".length))];
        },
        30_000,
      ),
    [Symbol.asyncDispose]: close,
  };
}
