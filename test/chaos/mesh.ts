// For the chaos tests: a real mesh on this machine whose parts are found, killed and frozen by pid, and what is left of
// it, counted from the kernel.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { homePaths, readClaim } from "../../deploy/local/home.ts";
import { leftovers } from "../../pool/provider/local/index.ts";
import { type ConnectOptions, connect, type Mesh, SandmeshError } from "../../sdk/typescript/mod.ts";
import { eventually, type LocalMesh, localMesh } from "../e2e/program.ts";
import { type Process, processes } from "../processes.ts";

/** Long runs too, for a machine of its own: SANDMESH_LONG=1. */
export const LONG = process.env.SANDMESH_LONG === "1";
/** Leases of these tests, and what is allowed beyond: within both nothing may be left. */
export const LEASE_MS = 3_000;
export const SLACK_MS = 10_000;
/** For the clients of a test to release what they hold. */
const CLOSE_MS = 5_000;

/** Short where a test waits for it; long enough for a busy machine where nothing shall pass. */
export const QUICK = {
  confirmMs: 3_000,
  disconnectGraceMs: 4_000,
  deadManGraceMs: 2_000,
  recoveryGraceMs: 5_000,
  removeRetryMinMs: 50,
  removeRetryMaxMs: 500,
  reconcileMs: 1_000,
};

export type Part = "supervisor" | "pool" | "nats" | "relay" | "launcher";
export type SandboxPart = "daemon" | "keeper";

export class ChaosMesh implements AsyncDisposable {
  readonly home: string;
  readonly url: string;
  readonly credentials: string;
  readonly #mesh: LocalMesh;
  readonly #clients: Mesh[] = [];
  readonly #frozen = new Set<number>();

  constructor(mesh: LocalMesh) {
    this.#mesh = mesh;
    this.home = mesh.home;
    this.url = mesh.url;
    this.credentials = mesh.credentials;
  }

  static async start(pool: Record<string, unknown> = {}): Promise<ChaosMesh> {
    return new ChaosMesh(await localMesh({ pool: { ...QUICK, ...pool }, providers: ["local"] }));
  }

  /** A client in this process; closed with the mesh. */
  async connect(options: ConnectOptions = {}): Promise<Mesh> {
    const { url, credentials } = this;
    const asked = { url, credentials, handleSignals: false, lease: LEASE_MS, ...options };
    // A server that was killed takes a moment to be back, and `connect` does not wait for one.
    let mesh: Mesh | undefined;
    await eventually("a server to connect to", async () => {
      mesh = (await settled(connect(asked))).value;
      return mesh !== undefined;
    });
    if (mesh === undefined) throw new Error("not connected");
    this.#clients.push(mesh);
    return mesh;
  }

  pid(part: Part): number {
    const supervisor = readClaim(homePaths(this.home))?.pid;
    if (supervisor === undefined) throw new Error("no mesh is up");
    if (part === "supervisor") return supervisor;
    const state = homePaths(this.home).local;
    const pool = part === "launcher" ? this.pid("pool") : undefined;
    const has = ({ argv }: Process, end: string) => argv.some((word) => word.endsWith(end));
    const is: Record<Exclude<Part, "supervisor">, (each: Process) => boolean> = {
      pool: (each) => each.parent === supervisor && has(each, "/pool/main.ts"),
      nats: ({ parent, argv }) => parent === supervisor && argv[0]?.endsWith("/nats-server") === true,
      relay: (each) => has(each, "/relay-process.ts") && each.argv.includes(state),
      launcher: (each) => each.parent === pool && has(each, "/launcher.py"),
    };
    const own = processes().filter(is[part]);
    const [one, more] = own;
    if (one === undefined || more !== undefined) throw new Error(`${own.length} processes are the ${part}`);
    return one.pid;
  }

  /** `daemon`: a sandbox's first process. `keeper`: the process outside that waits for it. */
  sandboxPid(sandbox: string, part: SandboxPart): number {
    const file = part === "daemon" ? "running" : "supervisor";
    const text = readFileSync(join(homePaths(this.home).local, "sandboxes", sandbox, file), "utf8");
    return v.parse(v.object({ pid: v.number() }), JSON.parse(text)).pid;
  }

  kill(pid: number): void {
    process.kill(pid, "SIGKILL");
  }

  freeze(pid: number): void {
    process.kill(pid, "SIGSTOP");
    this.#frozen.add(pid);
  }

  thaw(pid: number): void {
    this.#frozen.delete(pid);
    try {
      process.kill(pid, "SIGCONT");
    } catch {
      // It was ended while it was frozen.
    }
  }

  /** Kills a part that is kept running, and waits for the next one. */
  async killAndAwait(part: Exclude<Part, "supervisor">): Promise<void> {
    const before = this.pid(part);
    this.kill(before);
    await eventually(`another ${part}`, () => {
      try {
        return this.pid(part) !== before;
      } catch {
        return false;
      }
    });
  }

  /** What is there of sandboxes, by the kernel and the disk. */
  async left(): Promise<{ sandboxes: number; processes: number; mounts: number }> {
    // The mesh's own launcher and relay are there as long as it is up.
    const { sandboxes, processes, mounts } = await leftovers(homePaths(this.home).local);
    return { sandboxes, processes, mounts };
  }

  async nothingLeft(withinMs = LEASE_MS + SLACK_MS): Promise<void> {
    const observer = await this.connect();
    let last = "";
    const gone = async () => {
      const left = { ...(await this.left()), listed: (await observer.list()).length };
      last = JSON.stringify(left);
      return Object.values(left).every((count) => count === 0);
    };
    await eventually("nothing left", gone, withinMs).catch(() => {
      throw new Error(`left after ${withinMs} ms: ${last}`);
    });
  }

  /** `sandmesh down`; what it left. */
  end(): ReturnType<LocalMesh["end"]> {
    return this.#mesh.end();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const pid of this.#frozen) this.thaw(pid);
    // Where a test has ended the server for good, a release waits for its whole time.
    const closed = Promise.allSettled(this.#clients.map((client) => client.close()));
    await Promise.race([closed, Bun.sleep(CLOSE_MS)]);
    await this.#mesh[Symbol.asyncDispose]();
  }
}

/** How a promise settled, as what a caller sees; `afterMs` since the call of this. An error that is no SandmeshError is
 * a defect, and thrown. */
export async function settled<T>(promise: Promise<T>): Promise<Settled<T>> {
  const begun = performance.now();
  try {
    const value = await promise;
    return { value, error: undefined, afterMs: performance.now() - begun };
  } catch (error) {
    if (!(error instanceof SandmeshError)) throw error;
    return { value: undefined, error, afterMs: performance.now() - begun };
  }
}
export interface Settled<T> {
  value: T | undefined;
  error: SandmeshError | undefined;
  afterMs: number;
}

/** A command that adds one line to `file` at its start and one at its end: run twice, it shows. */
export const counted = (file: string, seconds: number, code: number): string =>
  `echo begun >> ${file}; sleep ${seconds}; echo ended >> ${file}; exit ${code}`;
