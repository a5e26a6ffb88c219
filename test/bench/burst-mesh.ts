// The burst's mesh: nats-server and the pool as processes beside the cluster's node, in its network.
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { randomName } from "../../broker/contract/index.ts";
import { formatCreds } from "../../broker/credentials/index.ts";
import { endingWithUs } from "../../broker/server/ending.ts";
import { type Server, startServer } from "../../broker/server/index.ts";
import type { KubernetesSettings } from "../../pool/provider/kubernetes/index.ts";
import { connect } from "../../sdk/typescript/mod.ts";
import { openApi, removePods } from "./burst-pods.ts";
import { untilTrue } from "./burst-wait.ts";

const POOL = join(import.meta.dir, "..", "..", "pool", "main.ts");
const START_MS = 30_000;
const REMOVE_MS = 120_000;

export interface MeshOptions {
  pool: Record<string, unknown>;
  kubernetes: Partial<KubernetesSettings>;
}

/** Of /bin/true the simulated daemons make nothing: the nodes are fake, and so is the daemon's image. */
const DAEMON = { by: "image", image: "simulated", pullPolicy: "Never" } as const;

export class BurstMesh {
  readonly mesh = `burst-${randomName(6)}`;
  readonly server: Server;
  readonly credentials: string;
  readonly #folder: string;
  #pool: ReturnType<typeof Bun.spawn> | undefined;

  private constructor(server: Server, folder: string) {
    this.server = server;
    this.#folder = folder;
    this.credentials = join(folder, "me.creds");
  }

  static async start(options: MeshOptions): Promise<BurstMesh> {
    const folder = await mkdtemp(join(tmpdir(), "sandmesh-burst-"));
    const made = new BurstMesh(await startServer({ stateDir: join(folder, "nats") }), folder);
    try {
      await made.#startPool(options);
      return made;
    } catch (error) {
      await made.end();
      throw error;
    }
  }

  get poolPid(): number {
    if (this.#pool === undefined) throw new Error("no pool runs");
    return this.#pool.pid;
  }

  get selector(): string {
    return `sandmesh.dev/mesh=${this.mesh}`;
  }

  async #startPool({ pool, kubernetes }: MeshOptions): Promise<void> {
    const { server } = this;
    const write = async (name: string, content: string): Promise<string> => {
      const path = join(this.#folder, name);
      await writeFile(path, content, { mode: 0o600 });
      return path;
    };
    await write("me.creds", formatCreds(server.keys.mintUser({ tenant: "default", user: "me" })));
    const config = {
      urls: [server.url],
      credentialsFile: await write("pool.creds", formatCreds(server.keys.mintPool())),
      keysFile: await write("keys.json", server.keys.format()),
      providers: [{ name: "kubernetes", settings: { mesh: this.mesh, daemon: DAEMON, ...kubernetes } }],
      logLevel: "warn",
      ...pool,
    };
    const argv = [process.execPath, POOL, "--config", await write("pool.json", JSON.stringify(config))];
    this.#pool = Bun.spawn(endingWithUs(argv), { stdio: ["ignore", "inherit", "inherit"] });
    const asker = await connect({ url: server.url, credentials: this.credentials, handleSignals: false });
    const answers = () =>
      asker.status().then(
        () => true,
        () => false,
      );
    await untilTrue("the pool's answer", START_MS, answers).finally(() => asker.close());
  }

  /** Ends the pool and the server, and removes what pods are left. */
  async end(): Promise<void> {
    this.#pool?.kill("SIGKILL");
    await this.#pool?.exited;
    const api = openApi();
    try {
      await removePods(api, this.selector, REMOVE_MS);
    } finally {
      api.close();
      await this.server.stop();
      await rm(this.#folder, { recursive: true, force: true });
    }
  }
}
