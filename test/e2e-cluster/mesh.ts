// The mesh that test/e2e-cluster/run has installed from the chart, as a trainer and an operator see it.
import { join } from "node:path";
import { type ConnectOptions, connect, type Mesh } from "../../sdk/typescript/mod.ts";
import { eventually } from "../e2e/program.ts";
import { killContainer, kubectl, podsOf, removePods } from "./cluster.ts";
import { INSTALLED } from "./install.ts";

/** A container that was killed is started again by kubelet at once, the second time after ten seconds, then twenty. */
const BACK_WITHIN_MS = 90_000;

export class ClusterMesh implements AsyncDisposable {
  readonly url = `tls://${INSTALLED.natsAddress}:4222`;
  readonly credentials: string;
  readonly #clients: Mesh[] = [];

  constructor() {
    const keys = process.env.SANDMESH_E2E_KEYS;
    if (keys === undefined) throw new Error("run these tests by `bash test/e2e-cluster/run`");
    this.credentials = join(keys, "me.creds");
  }

  async connect(options: ConnectOptions = {}): Promise<Mesh> {
    const { url, credentials } = this;
    const client = await connect({ url, credentials, handleSignals: false, ...options });
    this.#clients.push(client);
    return client;
  }

  podsLeft(): Promise<string[]> {
    return podsOf(INSTALLED.mesh, INSTALLED.sandboxes);
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

  /** Kills the first process of one of the mesh's own pods. */
  async kill(part: "nats" | "pool"): Promise<void> {
    const selector = `app.kubernetes.io/component=${part}`;
    const path = "jsonpath={.items[0].metadata.name}";
    const pod = await kubectl("-n", INSTALLED.namespace, "get", "pods", "-l", selector, "-o", path);
    await killContainer(pod, part, INSTALLED.namespace);
  }

  /** Resolves when the pool answers a client of its own. */
  async answers(): Promise<void> {
    const answered = async (): Promise<boolean> => {
      try {
        await using asker = await connect({
          url: this.url,
          credentials: this.credentials,
          handleSignals: false,
        });
        await asker.status();
        return true;
      } catch {
        return false;
      }
    };
    await eventually("the pool's answer", answered, BACK_WITHIN_MS);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.race([
      Promise.allSettled(this.#clients.map((client) => client.close())),
      Bun.sleep(10_000),
    ]);
    await removePods(INSTALLED.mesh, INSTALLED.sandboxes);
  }
}
