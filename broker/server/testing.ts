// For tests of all rooms: a real nats-server in a folder of its own, and links of each role to it.
//
//   await using server = await testServer();
//   const pool = await server.pool();
//   const user = await server.user("acme", "ann");
//   const { link } = await server.sandbox("acme", "sb-1");
import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Credentials, createUserKey } from "../credentials/index.ts";
import { type ConnectOptions, connect } from "../link/connect.ts";
import type { Link } from "../link/link.ts";
import type { KeyRing } from "./keyring.ts";
import { type Server, type ServerOptions, startServer } from "./start.ts";

/** Whether a process of this pid is there, a zombie among them. */
export function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

/** What the links of a test live at most, when it forgets to end them. */
const TTL_MS = 3600_000;

type More = Partial<ConnectOptions>;

export interface TestServer extends AsyncDisposable {
  readonly url: string;
  readonly port: number;
  readonly keys: KeyRing;
  readonly stateDir: string;
  /** The server as it runs now. */
  readonly server: Server;
  /** Connects with any credential; closed with the server. */
  connect(credentials: ConnectOptions["credentials"], more?: More): Promise<Link>;
  user(tenant?: string, user?: string, more?: More): Promise<Link>;
  operator(tenant?: string, user?: string, more?: More): Promise<Link>;
  observer(tenant?: string, more?: More): Promise<Link>;
  pool(more?: More): Promise<Link>;
  bootstrap(tenant: string, sandbox: string, more?: More): Promise<Link>;
  sandbox(tenant: string, sandbox: string, more?: More): Promise<Link>;
  /** A sandbox's credential, with a key made here. */
  sandboxCredentials(tenant: string, sandbox: string, ttlMs?: number): Credentials;
  /** `kill -9`, and resolves when it is gone. */
  kill(): Promise<void>;
  /** Starts it again after `kill` or `stop`, on the same port and state. */
  restart(): Promise<void>;
  /** Closes all links, ends the server, removes its folder. */
  close(): Promise<void>;
}

/** Removes the folder when this process has ended, by whatever means: a test that is killed, or forgets `close`, leaves
 * none. Ended by `close`, which has removed it by then. */
function removeWithOwner(folder: string): () => void {
  const script = 'cat; until rm -rf "$1" && ! [ -e "$1" ]; do sleep 0.1; done';
  const watcher = spawn("/bin/sh", ["-c", script, "sh", folder], {
    detached: true,
    stdio: ["pipe", "ignore", "ignore"],
  });
  watcher.unref();
  return () => watcher.stdin.end();
}

/** Starts one on a free port, in a folder that is removed at the end. */
export async function testServer(options: Partial<ServerOptions> = {}): Promise<TestServer> {
  const stateDir = options.stateDir ?? (await mkdtemp(join(tmpdir(), "sandmesh-nats-")));
  const removed = options.stateDir === undefined ? removeWithOwner(stateDir) : undefined;
  let server = await startServer({ ...options, stateDir });
  const links: Link[] = [];
  const open = async (credentials: ConnectOptions["credentials"], more: More = {}) => {
    const link = await connect({ urls: [server.url], credentials, ...more });
    links.push(link);
    return link;
  };
  const sandboxCredentials = (tenant: string, sandbox: string, ttlMs = TTL_MS) => {
    const { publicKey, seed } = createUserKey();
    return { jwt: server.keys.mintSandbox({ tenant, sandbox, publicKey, ttlMs }), seed };
  };
  const close = async () => {
    await Promise.all(links.splice(0).map((link) => link.close()));
    await server.stop();
    if (removed !== undefined) await rm(stateDir, { recursive: true, force: true });
    removed?.();
  };
  return {
    get url() {
      return server.url;
    },
    get port() {
      return server.port;
    },
    get keys() {
      return server.keys;
    },
    get server() {
      return server;
    },
    stateDir,
    connect: open,
    user: (tenant = "acme", user = "ann", more) => open(server.keys.mintUser({ tenant, user }), more),
    operator: (tenant = "acme", user = "root", more) =>
      open(server.keys.mintOperator({ tenant, user }), more),
    observer: (tenant = "acme", more) => open(server.keys.mintObserver({ tenant }), more),
    pool: (more) => open(server.keys.mintPool(), more),
    bootstrap: (tenant, sandbox, more) =>
      open(server.keys.mintBootstrap({ tenant, sandbox, ttlMs: TTL_MS }), more),
    sandbox: (tenant, sandbox, more) => open(sandboxCredentials(tenant, sandbox), more),
    sandboxCredentials,
    async kill() {
      process.kill(server.pid, "SIGKILL");
      await server.exited;
    },
    async restart() {
      await server.exited;
      server = await startServer({ ...options, stateDir, port: server.port });
    },
    close,
    [Symbol.asyncDispose]: close,
  };
}

/** Waits until `holds` is true (or answers something), looking every `everyMs`; throws after `withinMs`. */
export async function until<T>(
  what: string,
  holds: () => T | false | undefined | Promise<T | false | undefined>,
  withinMs = 10_000,
  everyMs = 5,
): Promise<T> {
  const deadline = performance.now() + withinMs;
  for (;;) {
    const value = await holds();
    if (value !== false && value !== undefined) return value;
    if (performance.now() > deadline) throw new Error(`not within ${withinMs} ms: ${what}`);
    await new Promise((go) => setTimeout(go, everyMs));
  }
}
