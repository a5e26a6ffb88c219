// For tests: a real server, a real pool, and real daemons as processes of this machine, without isolation.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestServer, testServer } from "../../../broker/server/testing.ts";
import type { PoolLimits } from "../../../pool/config.ts";
import type { CreateRequest, Listed, Provider, ProviderEvent } from "../../../pool/provider/provider.ts";
import { type Pool, startPool } from "../../../pool/service/pool.ts";
import { QUICK, SHORT } from "../../../pool/testing/mesh.ts";
import { MemoryRecords } from "../../../pool/testing/store.ts";
import type { ConnectOptions, Mesh } from "../../../sdk/typescript/mod.ts";
import { connectTo } from "../../../sdk/typescript/testing/harness.ts";
import { type Cuttable, cuttable } from "../../cuttable.ts";

const DAEMON = join(import.meta.dir, "..", "..", "..", "agent", "main.ts");

interface Made {
  request: CreateRequest;
  folder: string;
  daemon: ChildProcess;
  exited: Promise<unknown>;
}

/** Sandboxes as daemons of this machine, each with a folder of its own to start in. */
export class Daemons implements Provider {
  readonly name = "daemons";
  readonly made = new Map<string, Made>();
  readonly #watchers = new Set<(event: ProviderEvent) => void>();

  async validate(): Promise<void> {}

  async create(request: CreateRequest): Promise<{ uid: string }> {
    const { sandbox, bootstrap } = request;
    if (!this.made.has(sandbox)) {
      const folder = await mkdtemp(join(tmpdir(), "sandmesh-sandbox-"));
      const env = { ...process.env, SANDMESH_BOOTSTRAP: JSON.stringify({ ...bootstrap, cwd: folder }) };
      const daemon = spawn(process.execPath, [DAEMON], { cwd: folder, env, stdio: "ignore" });
      this.made.set(sandbox, { request, folder, daemon, exited: once(daemon, "exit") });
    }
    return { uid: sandbox };
  }

  async remove(sandbox: string): Promise<void> {
    const made = this.made.get(sandbox);
    if (made === undefined) return;
    made.daemon.kill("SIGTERM");
    await made.exited;
    await rm(made.folder, { recursive: true, force: true });
    this.made.delete(sandbox);
  }

  /** `kill -9` of the daemon; resolves when it is gone. */
  async kill(sandbox: string): Promise<void> {
    const made = this.made.get(sandbox);
    made?.daemon.kill("SIGKILL");
    await made?.exited;
  }

  signal(sandbox: string, signal: NodeJS.Signals): void {
    this.made.get(sandbox)?.daemon.kill(signal);
  }

  async list(): Promise<Listed[]> {
    return [...this.made.values()].map(({ request, daemon }) => ({
      sandbox: request.sandbox,
      tenant: request.tenant,
      uid: request.sandbox,
      phase: daemon.exitCode === null && daemon.signalCode === null ? "running" : "failed",
    }));
  }

  watch(handle: (event: ProviderEvent) => void): () => void {
    this.#watchers.add(handle);
    return () => this.#watchers.delete(handle);
  }

  notIsolated(): string[] {
    return ["everything"];
  }

  async close(): Promise<void> {}

  async end(): Promise<void> {
    // Also one that a test has stopped.
    for (const sandbox of this.made.keys()) this.signal(sandbox, "SIGCONT");
    await Promise.all([...this.made.keys()].map((sandbox) => this.remove(sandbox)));
  }
}

class LiveMesh implements AsyncDisposable {
  readonly server: TestServer;
  readonly provider = new Daemons();
  /** Of the daemons, to the server. */
  readonly daemonsWay: Cuttable | undefined;
  readonly #records = new MemoryRecords();
  readonly #limits: Partial<PoolLimits>;
  readonly #meshes: Mesh[] = [];
  #pool: Pool | undefined;

  constructor(server: TestServer, daemonsWay: Cuttable | undefined, limits: Partial<PoolLimits>) {
    this.server = server;
    this.daemonsWay = daemonsWay;
    this.#limits = limits;
  }

  async startPool(): Promise<void> {
    this.#pool = await startPool({
      link: await this.server.pool({ reconnect: QUICK }),
      store: this.#records.open(),
      minter: this.server.keys,
      providers: [this.provider],
      daemonUrls: [this.daemonsWay?.url ?? this.server.url],
      limits: { ...SHORT, ...this.#limits },
    });
  }

  /** A user's connection; closed with the mesh. */
  async connect(options: ConnectOptions = {}, user?: string): Promise<Mesh> {
    const mesh = await connectTo(this.server, options, user);
    this.#meshes.push(mesh);
    return mesh;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.allSettled(this.#meshes.map((mesh) => mesh.close()));
    await this.provider.end();
    await this.#pool?.close();
    await this.daemonsWay?.[Symbol.asyncDispose]();
    await this.server.close();
  }
}

/** `cuttable`: the daemons' connections can be cut. */
export async function liveMesh(
  options: { cuttable?: boolean; limits?: Partial<PoolLimits> } = {},
): Promise<LiveMesh> {
  const server = await testServer();
  const way = options.cuttable === true ? await cuttable(server.port) : undefined;
  const mesh = new LiveMesh(server, way, options.limits ?? {});
  await mesh.startPool();
  return mesh;
}

/** A sandbox of a mesh of its own, which `live` ends. */
export async function liveBox() {
  const live = await liveMesh();
  const mesh = await live.connect();
  return Object.assign(await mesh.acquire({ image: "host" }), { live, mesh });
}

/** A folder of this machine, which is removed with what is in it. */
export async function scratch(): Promise<{ path: string } & AsyncDisposable> {
  const path = await mkdtemp(join(tmpdir(), "sandmesh-scratch-"));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}
