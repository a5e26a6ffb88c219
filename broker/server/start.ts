// Starts a nats-server that dies with its owner, and waits until it takes connections.
import { type ChildProcess, spawn } from "node:child_process";
import { chmodSync, mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join, resolve } from "node:path";
import * as v from "valibot";
import { ConnectionError, decode, errnoOf } from "../contract/index.ts";
import { writePrivate } from "../credentials/private-file.ts";
import { findServerBinary, inPath } from "./binary.ts";
import { type ClusterSettings, formatConfig } from "./config.ts";
import { endingWithUs } from "./ending.ts";
import type { KeyRing } from "./keyring.ts";
import { keepKeys } from "./keys-file.ts";
import { keyRingOf, type OperatorKeys, signAccount, signOperatorJwts } from "./operator.ts";

export interface ServerOptions {
  /** Keys, configuration, JetStream's files, log and port; made if missing, readable by the owner alone. */
  stateDir: string;
  host?: string;
  /** 0: the port of the last start where it is free, otherwise any that is. */
  port?: number;
  /** Path of nats-server; left out: findServerBinary. */
  binary?: string;
  /** Monitoring (HTTP, loopback) on this port, 0 for a free one; left out: off. */
  monitor?: number;
  /** PEM files; the URL is `tls://` then. */
  tls?: { certFile: string; keyFile: string };
  cluster?: ClusterSettings;
  /** How long it may take to start, ms. */
  startTimeoutMs?: number;
  log?: (line: string) => void;
}

export interface Exit {
  code: number | null;
  signal: NodeJS.Signals | null;
}

export interface Server {
  readonly url: string;
  readonly port: number;
  /** Port of the monitoring, where it is on. */
  readonly monitorPort: number | undefined;
  /** Of nats-server itself. */
  readonly pid: number;
  readonly keys: KeyRing;
  /** Refuses credentials of this key that were issued until now, for ever, and cuts its connections. The accounts are in
   * the memory resolver: the account's JWT is signed anew with the revocation, and the server reloads its
   * configuration. (With another resolver, push such a JWT to it.) */
  revoke(publicKey: string): void;
  /** Ends it (SIGTERM, SIGKILL after 5 s) and resolves when it is gone. */
  stop(): Promise<void>;
  /** Resolves when it is gone, whoever ended it. */
  readonly exited: Promise<Exit>;
}

/** The server's end of a pipe tells whether its owner lives: end of file is the owner's death by whatever means. The
 * watcher (a shell) then kills its parent, which has become nats-server by `exec`; a line instead of the end tells it
 * to go. Where setpriv is there, the kernel does the same thing sooner (PR_SET_PDEATHSIG). */
const WRAPPER = `{ read -r _ <&3 || kill -KILL $$; } </dev/null >/dev/null 2>&1 & exec "$@" 3<&-`;

/** Starts one, or throws ConnectionError with what its log says. */
export async function startServer(options: ServerOptions): Promise<Server> {
  const stateDir = resolve(options.stateDir);
  mkdirSync(stateDir, { recursive: true, mode: 0o700 });
  chmodSync(stateDir, 0o700);
  const binary = options.binary ?? (await findServerBinary({ log: options.log }));
  const { keys } = keepKeys(
    join(stateDir, "keys.json"),
    "put a copy of it back; or remove it, so that new keys are made and every credential of before is refused",
  );
  const wanted = options.port || lastPort(stateDir);
  try {
    return await start(options, stateDir, binary, keys, wanted ?? -1);
  } catch (error) {
    // The port of the last start may be someone else's by now; one that the caller named is not ours to change.
    if (wanted === undefined || options.port) throw error;
    options.log?.(`port ${wanted} is not to be had, taking another: ${String(error)}`);
    return start(options, stateDir, binary, keys, -1);
  }
}

async function start(
  options: ServerOptions,
  stateDir: string,
  binary: string,
  keys: OperatorKeys,
  port: number,
): Promise<Server> {
  const host = options.host ?? "127.0.0.1";
  const monitorPort = options.monitor === undefined ? undefined : options.monitor || -1;
  const config = join(stateDir, "nats-server.conf");
  let jwts = signOperatorJwts(keys);
  const writeConfig = (listenPort: number) =>
    writePrivate(
      config,
      formatConfig({
        host,
        port: listenPort,
        stateDir,
        monitorPort,
        tls: options.tls,
        jwts,
        cluster: options.cluster,
      }),
    );
  writeConfig(port);
  // What a killed server left; ours removes its own.
  for (const name of readdirSync(stateDir)) if (name.endsWith(".ports")) rmSync(join(stateDir, name));
  const { child, exited } = launch(binary, config);
  let ports: Ports;
  try {
    ports = await portsOf(child, exited, stateDir, options.startTimeoutMs ?? 15_000);
  } catch (cause) {
    child.kill("SIGKILL");
    await exited;
    throw new ConnectionError(`nats-server did not start: ${String(cause)}\n${logTail(stateDir)}`, { cause });
  }
  writePrivate(join(stateDir, "port"), `${ports.port}\n`);
  return {
    url: `${options.tls === undefined ? "nats" : "tls"}://${host.includes(":") ? `[${host}]` : host}:${ports.port}`,
    port: ports.port,
    monitorPort: ports.monitorPort,
    pid: ports.pid,
    keys: keyRingOf(keys),
    exited,
    revoke(publicKey) {
      keys.revoked[publicKey] = Math.floor(Date.now() / 1000);
      writePrivate(join(stateDir, "keys.json"), JSON.stringify(keys));
      jwts = { ...jwts, account: signAccount(keys) };
      writeConfig(ports.port);
      child.kill("SIGHUP");
    },
    stop: () => stop(child, exited),
  };
}

/** Of the machine's processors, how many nats-server runs on at once: it shares them with whom it serves. With a second one
 * Go wakes another thread for each message, to look for work: on two processors a third of its CPU. */
const SHARE = String(Math.max(1, availableParallelism() >> 1));
/** How much garbage it may have before it collects it, % of what lives. A chunk is a buffer of its own there, and by Go's 100
 * each sixteen of them bring a collection: a third of its CPU. */
const GARBAGE = "400";

function launch(binary: string, config: string): { child: ChildProcess; exited: Promise<Exit> } {
  const server = [binary, "-c", config];
  const command = inPath("setpriv") === undefined ? server : endingWithUs(server);
  const child = spawn("/bin/sh", ["-c", WRAPPER, "nats-server", ...command], {
    // A session of its own: Ctrl-C at the owner's terminal is the owner's to handle, in its order.
    detached: true,
    stdio: ["ignore", "ignore", "ignore", "pipe"],
    env: {
      PATH: process.env.PATH ?? "/usr/bin:/bin",
      GOMAXPROCS: process.env.GOMAXPROCS ?? SHARE,
      GOGC: process.env.GOGC ?? GARBAGE,
    },
  });
  const owned = child.stdio[3];
  owned?.on("error", () => {});
  const exited = new Promise<Exit>((done) => {
    const gone = (exit: Exit) => {
      if (owned && "end" in owned) owned.end("gone\n");
      done(exit);
    };
    child.once("exit", (code, signal) => gone({ code, signal }));
    child.once("error", () => gone({ code: null, signal: null }));
  });
  return { child, exited };
}

async function stop(child: ChildProcess, exited: Promise<Exit>): Promise<void> {
  child.kill("SIGTERM");
  const timer = setTimeout(() => child.kill("SIGKILL"), 5_000);
  await exited;
  clearTimeout(timer);
}

interface Ports {
  port: number;
  monitorPort: number | undefined;
  pid: number;
}

const PortsFile = v.object({ nats: v.array(v.string()), monitoring: v.optional(v.array(v.string())) });

/** Waits for the file that nats-server writes once it takes connections. */
async function portsOf(
  child: ChildProcess,
  exited: Promise<Exit>,
  stateDir: string,
  timeoutMs: number,
): Promise<Ports> {
  const { pid } = child;
  if (pid === undefined) throw new Error("/bin/sh could not be started");
  const file = join(stateDir, `nats-server_${pid}.ports`);
  let exit: Exit | undefined;
  exited.then((how) => {
    exit = how;
  });
  const deadline = Date.now() + timeoutMs;
  while (Date.now() < deadline) {
    if (exit !== undefined) throw new Error(`it exited with ${exit.code ?? exit.signal}`);
    const ports = readPorts(file);
    if (ports !== undefined) {
      return { ...ports, pid };
    }
    await new Promise((go) => setTimeout(go, 5));
  }
  throw new Error(`it took no connections within ${timeoutMs} ms`);
}

function readPorts(file: string): Omit<Ports, "pid"> | undefined {
  try {
    const { nats, monitoring } = v.parse(PortsFile, decode(readFileSync(file)));
    const [port, monitorPort] = [nats[0], monitoring?.[0]].map((url) =>
      url ? Number(new URL(url).port) : undefined,
    );
    return port ? { port, monitorPort } : undefined;
  } catch {
    return undefined; // not there yet, or half written
  }
}

function lastPort(stateDir: string): number | undefined {
  const port = Number(readIfThere(join(stateDir, "port")));
  return Number.isInteger(port) && port > 0 && port < 65536 ? port : undefined;
}

function logTail(stateDir: string): string {
  return (readIfThere(join(stateDir, "nats-server.log")) ?? "(no log)").split("\n").slice(-8).join("\n");
}

function readIfThere(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return undefined;
    throw error;
  }
}
