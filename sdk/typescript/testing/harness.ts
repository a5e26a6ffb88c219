// For tests: a mesh with a pool in this process, a user's credentials on disk, and programs that use the SDK.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { formatCreds } from "../../../broker/credentials/index.ts";
import { build } from "../build.ts";
import { type ConnectOptions, connectAs } from "../connect.ts";
import type { Mesh } from "../mesh.ts";

const ROOT = join(import.meta.dir, "..", "..", "..");
const TTL_MS = 3600_000;

interface Server {
  readonly url: string;
  readonly keys: {
    mintUser(options: { tenant: string; user: string; ttlMs?: number }): { jwt: string; seed: string };
  };
}

export function credentialsOf(server: Server, user = "ann"): string {
  return formatCreds(server.keys.mintUser({ tenant: "acme", user, ttlMs: TTL_MS }));
}

/** A mesh for a user, as its own program would connect; no signal handlers, since the test runner has its own. */
export function connectTo(
  server: Server,
  options: ConnectOptions = {},
  user?: string,
  inner: { goneAfterMs?: number } = {},
): Promise<Mesh> {
  const credentials = credentialsOf(server, user);
  return connectAs({ url: server.url, credentials, handleSignals: false, ...options }, inner);
}

export interface Step {
  step: string;
  [more: string]: unknown;
}

export type Runtime = "bun" | "node";

let built: Promise<string> | undefined;

/** What the package is made from, as one word. */
async function fingerprint(): Promise<string> {
  const hash = new Bun.CryptoHasher("sha256");
  const folders = ["sdk/typescript", "broker/contract", "broker/credentials", "broker/link"];
  const found = folders.map((folder) =>
    Array.fromAsync(new Bun.Glob(`${folder}/**/*.ts`).scan({ cwd: ROOT })),
  );
  const names = (await Promise.all(found)).flat();
  if (names.length === 0) throw new Error("no sources found");
  for (const name of names.filter((each) => !/\.test\.ts$|\/dist\//.test(each)).sort()) {
    hash.update(`${name}\0`).update(await Bun.file(join(ROOT, name)).bytes());
  }
  return hash.digest("hex").slice(0, 16);
}

/** The package as Node gets it, in the checkout's dist folder, so that its dependencies are found, and not in the package's
 * own, which each build empties; built once for each state of the sources. */
export function builtPackage(): Promise<string> {
  built ??= (async () => {
    const folder = join(ROOT, "dist", `sdk-typescript-${await fingerprint()}`);
    if (!(await Bun.file(join(folder, "mod.js")).exists())) {
      // Under another name first: a second process may build at the same time.
      const draft = `${folder}.${process.pid}`;
      await build(draft);
      await rename(draft, folder).catch(() => rm(draft, { recursive: true }));
    }
    return join(folder, "mod.js");
  })();
  return built;
}

/** A process that uses the SDK; ended, and its files removed, with `await using`. */
export class Program implements AsyncDisposable {
  readonly process: ChildProcess;
  readonly #folder: string;
  readonly #steps: Step[] = [];
  readonly #exited: Promise<{ code: number | null; signal: NodeJS.Signals | null }>;
  #stderr = "";
  #wake: () => void = () => undefined;

  private constructor(child: ChildProcess, folder: string) {
    this.process = child;
    this.#folder = folder;
    this.#exited = once(child, "close").then(([code, signal]) => ({ code, signal }));
    if (child.stdout === null || child.stderr === null) throw new Error("no pipes");
    createInterface({ input: child.stdout }).on("line", (line) => {
      this.#steps.push(JSON.parse(line));
      this.#wake();
    });
    child.stderr.on("data", (data: Buffer) => {
      this.#stderr += data.toString();
    });
  }

  static async start(
    runtime: Runtime,
    server: Server,
    scenario: string,
    env: Record<string, string> = {},
    script = "child.mjs",
  ): Promise<Program> {
    const folder = await mkdtemp(join(tmpdir(), "sandmesh-sdk-"));
    const credentials = join(folder, "user.creds");
    await writeFile(credentials, credentialsOf(server), { mode: 0o600 });
    const sdk = runtime === "bun" ? join(import.meta.dir, "..", "mod.ts") : await builtPackage();
    const program = runtime === "bun" ? process.execPath : "node";
    const child = spawn(program, [join(import.meta.dir, script), scenario], {
      stdio: ["ignore", "pipe", "pipe"],
      env: { ...process.env, SDK: sdk, SANDMESH_URL: server.url, SANDMESH_CREDS: credentials, ...env },
    });
    return new Program(child, folder);
  }

  /** The next occurrence of that step; throws where the program ends before. */
  async step(name: string): Promise<Step> {
    const ended = this.#exited.then(() => "ended" as const);
    for (;;) {
      const found = this.#steps.find((each) => each.step === name);
      if (found !== undefined) return found;
      const next = new Promise<"more">((go) => {
        this.#wake = () => go("more");
      });
      if (
        (await Promise.race([next, ended])) === "ended" &&
        !this.#steps.some((each) => each.step === name)
      ) {
        throw new Error(`the program ended before ${name}: ${this.#stderr}`);
      }
    }
  }

  get exited(): Promise<{ code: number | null; signal: NodeJS.Signals | null }> {
    return this.#exited;
  }

  get stderr(): string {
    return this.#stderr;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.process.kill("SIGKILL");
    await this.#exited;
    await rm(this.#folder, { recursive: true, force: true });
  }
}
