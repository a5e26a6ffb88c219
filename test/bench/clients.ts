// The client processes of a burst (acquire-client.ts), which share its sandboxes: told what to do, and heard.
import { join } from "node:path";
import * as v from "valibot";
import { endingWithUs } from "../../broker/server/ending.ts";
import { lines } from "./lines.ts";

/** Between connecting and a first burst, in which a trainer loads its model, and its renewing thread begins. */
const LOADING_MS = 2_000;

export const CLIENT = join(import.meta.dir, "acquire-client.ts");

const Connected = v.object({ connected: v.literal(true) });
const Released = v.object({ released: v.literal(true) });
const Acquired = v.object({
  granted: v.array(v.object({ sandbox: v.string(), at: v.number() })),
  lost: v.number(),
});
export type Acquired = v.InferOutput<typeof Acquired>;

export interface ClientsOptions {
  n: number;
  clients: number;
  leaseMs: number;
  /** Of the mesh. */
  url: string;
  credentials: string;
  script: string;
}

export class Clients {
  readonly #all;

  constructor({ n, clients, leaseMs, url, credentials, script }: ClientsOptions) {
    const env = { ...process.env, SANDMESH_URL: url, SANDMESH_CREDS: credentials };
    this.#all = Array.from({ length: clients }, (_, i) => {
      const share = Math.floor(n / clients) + (i < n % clients ? 1 : 0);
      const argv = endingWithUs([process.execPath, script, String(share), String(leaseMs)]);
      const child = Bun.spawn(argv, { env, stdio: ["pipe", "pipe", "inherit"] });
      return { child, words: lines(child.stdout) };
    });
  }

  get pids(): number[] {
    return this.#all.map(({ child }) => child.pid);
  }

  /** Resolves when all are connected, and have been for a while. */
  async connected(): Promise<void> {
    await this.#heard(Connected);
    await Bun.sleep(LOADING_MS);
  }

  acquire(): Promise<Acquired[]> {
    this.#say("go");
    return this.#heard(Acquired);
  }

  async release(): Promise<void> {
    this.#say("release");
    await this.#heard(Released);
  }

  /** Has them end in order. */
  end(): void {
    for (const { child } of this.#all) child.stdin.end();
  }

  kill(): void {
    for (const { child } of this.#all) child.kill("SIGKILL");
  }

  /** Their exit codes, once all have ended. */
  exited(): Promise<number[]> {
    return Promise.all(this.#all.map(({ child }) => child.exited));
  }

  /** The next word of each. */
  #heard<S extends v.GenericSchema<unknown, unknown>>(schema: S): Promise<v.InferOutput<S>[]> {
    return Promise.all(
      this.#all.map(async ({ words }) => v.parse(schema, JSON.parse((await words.next()).value ?? "{}"))),
    );
  }

  #say(word: "go" | "release"): void {
    for (const { child } of this.#all) {
      child.stdin.write(`${word}\n`);
      child.stdin.flush();
    }
  }
}
