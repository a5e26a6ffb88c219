// A mesh whose sandboxes are pods: nats-server and the pool as processes beside the cluster's node, in its network.
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { formatCreds } from "../../broker/credentials/index.ts";
import { type Server, startServer } from "../../broker/server/index.ts";
import type { KubernetesSettings } from "../../pool/provider/kubernetes/index.ts";
import { type ConnectOptions, connect, type Mesh } from "../../sdk/typescript/mod.ts";
import { eventually } from "../e2e/program.ts";
import { inCheckout, newMesh, podsOf, removePods, settingsFor } from "./cluster.ts";

/** The node's address in test/cluster, which pods reach. */
const NODE = process.env.SANDMESH_CLUSTER_NODE ?? "10.90.0.1";
const CONNECT_TRIES_MS = 30_000;

export interface ClusterOptions {
  pool?: Record<string, unknown>;
  kubernetes?: Partial<KubernetesSettings>;
}

type Child = ReturnType<typeof Bun.spawn>;

export class ClusterMesh implements AsyncDisposable {
  readonly mesh: string;
  readonly folder: string;
  readonly server: Server;
  readonly credentials: string;
  readonly #clients: Mesh[] = [];
  #pool: Child | undefined;

  private constructor(mesh: string, folder: string, server: Server) {
    this.mesh = mesh;
    this.folder = folder;
    this.server = server;
    this.credentials = join(folder, "me.creds");
  }

  static async start({ pool = {}, kubernetes = {} }: ClusterOptions = {}): Promise<ClusterMesh> {
    const folder = await mkdtemp(join(tmpdir(), "sandmesh-cluster-"));
    const server = await startServer({ stateDir: join(folder, "nats"), host: NODE });
    const made = new ClusterMesh(newMesh(), folder, server);
    try {
      await made.#write(pool, kubernetes);
      await made.startPool();
    } catch (error) {
      await made[Symbol.asyncDispose]();
      throw error;
    }
    return made;
  }

  get pool(): Child {
    if (this.#pool === undefined) throw new Error("no pool runs");
    return this.#pool;
  }

  async #write(pool: Record<string, unknown>, kubernetes: Partial<KubernetesSettings>): Promise<void> {
    const { folder, server } = this;
    const write = async (name: string, content: string): Promise<string> => {
      const path = join(folder, name);
      await writeFile(path, content, { mode: 0o600 });
      return path;
    };
    const config = {
      urls: [server.url],
      credentialsFile: await write("pool.creds", formatCreds(server.keys.mintPool())),
      keysFile: await write("keys.json", server.keys.format()),
      providers: [{ name: "kubernetes", settings: settingsFor(this.mesh, kubernetes) }],
      logLevel: "warn",
      ...pool,
    };
    await write("pool.json", JSON.stringify(config));
    await write("me.creds", formatCreds(server.keys.mintUser({ tenant: "default", user: "me" })));
  }

  /** Resolves when it answers. */
  async startPool(): Promise<void> {
    const log = Bun.file(join(this.folder, "pool.log"));
    const argv = [
      process.execPath,
      inCheckout("pool", "main.ts"),
      "--config",
      join(this.folder, "pool.json"),
    ];
    this.#pool = Bun.spawn(argv, { stdout: log, stderr: log });
    const asker = await this.connect();
    const answers = () =>
      asker.status().then(
        () => true,
        () => false,
      );
    await eventually("the pool's answer", answers, CONNECT_TRIES_MS);
  }

  async killPool(): Promise<void> {
    this.pool.kill("SIGKILL");
    await this.pool.exited;
  }

  async connect(options: ConnectOptions = {}): Promise<Mesh> {
    const { server, credentials } = this;
    const client = await connect({ url: server.url, credentials, handleSignals: false, ...options });
    this.#clients.push(client);
    return client;
  }

  podsLeft(): Promise<string[]> {
    return podsOf(this.mesh);
  }

  async nothingLeft(withinMs: number): Promise<void> {
    let left: string[] = [];
    const gone = async () => {
      left = await this.podsLeft();
      return left.length === 0;
    };
    await eventually("no pod left", gone, withinMs).catch(() => {
      throw new Error(`left after ${withinMs} ms: ${left.join(", ")}`);
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.race([
      Promise.allSettled(this.#clients.map((client) => client.close())),
      Bun.sleep(10_000),
    ]);
    this.#pool?.kill("SIGKILL");
    await this.#pool?.exited;
    await removePods(this.mesh);
    await this.server.stop();
    await rm(this.folder, { recursive: true, force: true });
  }
}
