// For the tests of this folder: a provider in a folder of its own, whose sandboxes run a shell in the daemon's place.
// `/bin/sh` runs the script of a test if there is one, then waits.
import { mkdtemp, readFile, realpath, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { check, SandboxSpec } from "../../../broker/contract/index.ts";
import { until } from "../contract.test-suite.ts";
import type { CreateRequest } from "../provider.ts";
import { Identity, readRecord } from "./layout.ts";
import { leftovers } from "./leftovers.ts";
import { mounts } from "./places.ts";
import { relaysOf } from "./processes.ts";
import { createLocalProvider, type LocalOptions, type LocalProvider } from "./provider.ts";

export const signal = (): AbortSignal => AbortSignal.timeout(60_000);
const END = "=== end of the probe ===";

export function requestFor(sandbox: string, wish: object, maxLifeMs = 600_000): CreateRequest {
  const spec = check(SandboxSpec, { image: "host", ...wish });
  const bootstrap = {
    version: 1 as const,
    urls: ["nats://127.0.0.1:4222"],
    tenant: "acme",
    sandbox,
    generation: 1,
    jwt: "the-jwt",
    seed: "the-seed",
    boot_timeout_ms: 10_000,
  };
  return { sandbox, tenant: "acme", run: "run-1", spec, bootstrap, maxLifeMs };
}

export class Bench implements AsyncDisposable {
  readonly folder: string;
  readonly stateDir: string;
  provider: LocalProvider;
  readonly warnings: string[] = [];
  readonly #options: LocalOptions;

  constructor(folder: string, more: Partial<LocalOptions>) {
    this.folder = folder;
    this.stateDir = more.stateDir ?? join(folder, "state");
    this.#options = {
      stateDir: this.stateDir,
      daemonDir: folder,
      daemonArgv: [
        "/bin/sh",
        "-c",
        `if [ -f /probe/run ]; then . /probe/run; echo; echo '${END}'; fi; exec sleep 1000`,
      ],
      natsUrl: "127.0.0.1:1",
      log: { info: () => undefined, warn: (_, message) => this.warnings.push(message) },
      ...more,
    };
    this.provider = createLocalProvider(this.#options);
  }

  /** Not below /tmp, which image `host` has anew: what must be hidden is to be hidden by the provider. */
  static async make(more: Partial<LocalOptions> = {}): Promise<Bench> {
    return new Bench(await realpath(await mkdtemp("/var/tmp/sandmesh-local-")), more);
  }

  create(sandbox: string, wish: object = {}, maxLifeMs?: number) {
    return this.provider.create(requestFor(sandbox, wish, maxLifeMs), signal());
  }

  remove(sandbox: string): Promise<void> {
    return this.provider.remove(sandbox, undefined, signal());
  }

  /** The sandbox's first process. */
  async first(sandbox: string): Promise<Identity> {
    const path = join(this.stateDir, "sandboxes", sandbox, "running");
    const found = await readRecord(Identity, path);
    if (found === undefined) throw new Error(`no ${path}`);
    return found;
  }

  async supervisor(sandbox: string): Promise<Identity> {
    const found = await readRecord(Identity, join(this.stateDir, "sandboxes", sandbox, "supervisor"));
    if (found === undefined) throw new Error("no supervisor");
    return found;
  }

  /** What the sandbox's first process wrote so far. */
  log(sandbox: string): Promise<string> {
    return readFile(join(this.stateDir, "sandboxes", sandbox, "daemon.log"), "utf8").catch(() => "");
  }

  /** A new sandbox that runs `script` as its first process would; answers what it wrote. */
  async probe(sandbox: string, script: string, wish: object = {}): Promise<string> {
    const folder = await mkdtemp(join(this.folder, "probe-"));
    await Bun.$`chmod 755 ${folder}`.quiet();
    await writeFile(join(folder, "run"), `{\n${script}\n} 2>&1`, { mode: 0o755 });
    const volumes = [{ name: "probe", source: folder, mount_path: "/probe" }];
    await this.create(sandbox, {
      ...wish,
      volumes: [...volumes, ...("volumes" in wish && Array.isArray(wish.volumes) ? wish.volumes : [])],
    });
    await until("the probe's end", async () => (await this.log(sandbox)).includes(END));
    return (await this.log(sandbox)).split(`\n${END}`)[0] ?? "";
  }

  async restart(): Promise<LocalProvider> {
    this.provider = createLocalProvider(this.#options);
    return this.provider;
  }

  /** All that is there of sandboxes, in words, from the kernel and the disk. */
  async left(): Promise<string[]> {
    const { services: _, ...counts } = await leftovers(this.stateDir);
    return Object.entries(counts).flatMap(([what, count]) => (count > 0 ? [`${count} ${what}`] : []));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.provider.end(signal());
    const after = await leftovers(this.stateDir);
    await rm(this.folder, { recursive: true, force: true });
    const left = Object.entries(after).filter(([, count]) => count > 0);
    if (left.length > 0) throw new Error(`left behind: ${JSON.stringify(after)}`);
  }
}

/** Of a spec: that folder at /v. */
export const volume = (source: string) => ({ volumes: [{ name: "v", source, mount_path: "/v" }] });

/** Also what lies in something else that is mounted there. */
export async function unmountBelow(folder: string): Promise<void> {
  const points = mounts().map(({ point }) => point);
  for (const point of points.filter((each) => each.startsWith(folder)).reverse())
    await Bun.$`umount ${point}`.quiet();
}

/** Throws where none runs. */
export async function relayPid(stateDir: string): Promise<number> {
  const [pid] = await relaysOf(stateDir);
  if (pid === undefined) throw new Error("no relay runs");
  return pid;
}

// `bun testing.ts <folder> <max life, ms> <sandbox>…`: a pool process that makes sandboxes at once, says when the first
// is there, and then waits to be killed.
if (import.meta.main) {
  const [folder = "", maxLifeMs = "", ...sandboxes] = process.argv.slice(2);
  const bench = new Bench(folder, {});
  await Promise.race(sandboxes.map((sandbox) => bench.create(sandbox, {}, Number(maxLifeMs))));
  process.stdout.write("created\n");
  setInterval(() => undefined, 1 << 30);
}
