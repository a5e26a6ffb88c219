// A mesh that is installed from the chart, by default the one of test/e2e-cluster/run, as a trainer and an operator see it.
import { expect } from "bun:test";
import { join } from "node:path";
import { type ConnectOptions, connect, type Mesh, type Sandbox } from "../../sdk/typescript/mod.ts";
import { eventually } from "../e2e/program.ts";
import { killContainer, kubectl, podsOf, removePods } from "./cluster.ts";
import { INSTALLED, type Release } from "./install.ts";

/** A container that was killed is started again by kubelet at once, the second time after ten seconds, then twenty. */
const BACK_WITHIN_MS = 90_000;

/** And none is there twice. */
export async function answerAsThemselves(boxes: readonly Sandbox[]): Promise<void> {
  const said = await Promise.all(boxes.map((box) => box.exec("hostname")));
  expect(said.map(({ stdout }) => stdout.text.trim()).sort()).toEqual(boxes.map(({ id }) => id).sort());
}

export class ClusterMesh implements AsyncDisposable {
  readonly url: string;
  readonly credentials: string;
  readonly ca: string;
  readonly #release: Release;
  readonly #clients: Mesh[] = [];

  constructor(release = INSTALLED, keys = process.env.SANDMESH_E2E_KEYS) {
    this.#release = release;
    this.url =
      (release === INSTALLED ? process.env.SANDMESH_URL : undefined) ?? `tls://${release.natsAddress}:4222`;
    if (keys === undefined) throw new Error("run these tests by `bash test/e2e-cluster/run`");
    this.credentials = join(keys, "me.creds");
    this.ca = join(keys, "ca.crt");
  }

  async connect(options: ConnectOptions = {}): Promise<Mesh> {
    const client = await this.#open(options);
    this.#clients.push(client);
    return client;
  }

  #open(options: ConnectOptions = {}): Promise<Mesh> {
    const { url, credentials, ca } = this;
    return connect({ url, credentials, ca, handleSignals: false, ...options });
  }

  podsLeft(): Promise<string[]> {
    return podsOf(this.#release.mesh, this.#release.sandboxes);
  }

  /** Resolves when a burst is under way. */
  async begun(): Promise<void> {
    const some = async () => (await this.podsLeft()).length >= 2;
    await eventually("the burst has begun", some, 60_000);
  }

  /** Each answers as itself, none twice, and there is no pod beside theirs; then they are released. */
  async whole(boxes: readonly Sandbox[]): Promise<void> {
    await answerAsThemselves(boxes);
    expect(await this.podsLeft()).toHaveLength(boxes.length);
    await Promise.all(boxes.map((box) => box.release()));
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
    const { namespace } = this.#release;
    const pod = await kubectl("-n", namespace, "get", "pods", "-l", selector, "-o", path);
    await killContainer(pod, part, namespace);
  }

  /** Resolves when the pool answers a client of its own. */
  async answers(): Promise<void> {
    const answered = async (): Promise<boolean> => {
      try {
        await using asker = await this.#open();
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
    await removePods(this.#release.mesh, this.#release.sandboxes);
  }
}
