// The process behind `sandmesh up`: nats-server and the pool as its children, kept running until it is told to stop;
// then it releases everything, proves it, and ends. Run as `bun deploy/local/supervisor.ts HOME`; it says `ready` with
// the mesh's address, as one line of JSON on stdout, when acquires are answered.
import { existsSync, rmSync, statfsSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { pino } from "pino";
import * as v from "valibot";
import {
  check,
  DeadlineError,
  InvalidRequestError,
  PoolUnavailableError,
  RenewAnswer,
  toSandmeshError,
} from "../../broker/contract/index.ts";
import { formatCreds } from "../../broker/credentials/index.ts";
import { writePrivate } from "../../broker/credentials/private-file.ts";
import { connect } from "../../broker/link/connect.ts";
import type { Link } from "../../broker/link/link.ts";
import { type Server, startServer } from "../../broker/server/index.ts";
import { askPool, drain, TENANT, untilPoolAnswers } from "./ask-pool.ts";
import { type Child, keepRunning, lastLine } from "./child.ts";
import { claimHome, claimOf, endsWithMesh, type HomePaths, homePaths, makeHome } from "./home.ts";
import { clearLeft, endLocal, type Left, leftBehind, localSettings, nothingLeft } from "./left.ts";

const OPERATOR = "operator";
const ROOT = join(import.meta.dir, "..", "..");
/** What the pool's process says of settings that cannot be: starting it again does not help. */
const POOL_REFUSES = "status 2";
/** How often the pool is asked whether its records can be written; and what the disk must have for another try. */
const RECORDS_MS = 5_000;
/** So many of these questions unanswered in a row, each for 10 s, and the pool hangs: 45 s at most. */
const POOL_UNANSWERED = 3;
/** What does not answer the pings for 12 s (broker/link), and for so long takes no new connection, hangs: in time before its
 * clients give it up for gone, after 60 s. */
const NATS_HANGS_MS = 20_000;
const ROOM_BYTES = 1024 ** 2;
/** How often the supervisor looks whether the home is still its own. */
const CLAIM_MS = 1_000;

/** What `sandmesh up` needs to know beyond its home. All optional; the environment variable SANDMESH_UP carries it. */
export const UpOptions = v.object({
  user: v.optional(v.string(), "me"),
  port: v.optional(v.number(), 0),
  /** Settings of the pool, over its defaults (pool/config.ts). */
  pool: v.optional(v.record(v.string(), v.unknown()), {}),
  /** In the order in which they are asked. */
  providers: v.optional(v.array(v.picklist(["local", "simulated"])), ["local"]),
  /** Settings of the simulated provider, over those below. */
  simulated: v.optional(v.record(v.string(), v.unknown()), {}),
  /** It ends when the process that has started it does, by whatever means: its stdin is a pipe from there. */
  owned: v.optional(v.boolean(), false),
  /** Of an owned one: where its owner died without ending it, its home is removed with it. */
  temporary: v.optional(v.boolean(), false),
});
export type UpOptions = v.InferInput<typeof UpOptions>;

export interface MeshAddress {
  url: string;
  credentials: string;
}

/** Sandboxes of this machine that start at once, a processor. A start is CPU time and little else, so that more of them
 * make each slower and none sooner, until the provider's own limits (20 s) are reached: of 208 at once on two, 90. */
const BOOTING_PER_PROCESSOR = 8;

/** Writes what the pool reads: its credential, its signing keys and its settings. */
function writePoolFiles(paths: HomePaths, server: Server, options: v.InferOutput<typeof UpOptions>): void {
  writePrivate(paths.poolCredentials, formatCreds(server.keys.mintPool()));
  writePrivate(paths.poolKeys, server.keys.format());
  const settings: Record<string, Record<string, unknown>> = {
    local: localSettings(paths, new URL(server.url).host),
    // In a process of its own, so that the pool's figures are the pool's.
    simulated: { hosts: 1, stateDir: join(paths.home, "simulated"), ...options.simulated },
  };
  const here = options.providers.includes("local");
  const config = {
    ...(here && { maxBooting: BOOTING_PER_PROCESSOR * availableParallelism() }),
    urls: [server.url],
    credentialsFile: paths.poolCredentials,
    keysFile: paths.poolKeys,
    providers: options.providers.map((name) => ({ name, settings: settings[name] })),
    ...options.pool,
  };
  writePrivate(paths.poolConfig, `${JSON.stringify(config, null, 2)}\n`);
}

class Mesh {
  readonly #paths: HomePaths;
  readonly #options: v.InferOutput<typeof UpOptions>;
  readonly #log;
  #server: Server | undefined;
  #pool: Child | undefined;
  #operator: Link | undefined;
  #stopping = false;
  #stopped: Promise<void> | undefined;
  #orphaned = false;

  constructor(home: string, options: v.InferOutput<typeof UpOptions>) {
    this.#paths = makeHome(home);
    this.#options = options;
    this.#log = pino(
      { name: "supervisor" },
      pino.destination({ dest: join(this.#paths.logs, "supervisor.log"), sync: true }),
    );
  }

  async start(): Promise<MeshAddress> {
    for (const old of [this.#paths.mesh, join(this.#paths.home, "down.json")]) rmSync(old, { force: true });
    // What a killed mesh left: its sandboxes end by their dead man's time; here they go at once.
    await clearLeft(this.#paths);
    const server = await this.#startServer(this.#options.port);
    writePoolFiles(this.#paths, server, this.#options);
    const logFile = join(this.#paths.logs, "pool.log");
    const refused = Promise.withResolvers<never>();
    refused.promise.catch(() => undefined);
    this.#pool = keepRunning({
      argv: [process.execPath, join(ROOT, "pool", "main.ts"), "--config", this.#paths.poolConfig],
      env: { ...process.env, SANDMESH_UP: undefined },
      logFile,
      onExit: (status) => {
        this.#log.warn({ status }, "the pool ended; starting it again");
        if (status === POOL_REFUSES) refused.reject(new InvalidRequestError(lastLine(logFile)));
      },
    });
    const ours = server.keys.mintOperator({ tenant: TENANT, user: OPERATOR });
    this.#operator = await connect({
      urls: [server.url],
      credentials: ours,
      name: "supervisor",
      goneAfterMs: NATS_HANGS_MS,
    });
    this.#operator.onGone(() => {
      this.#log.warn({}, "nats-server does not answer; starting it again");
      // Of no effect where it has ended already.
      void this.#server?.stop();
    });
    await Promise.race([untilPoolAnswers(this.#operator), refused.promise]);
    const { credentials, observer, operator, mesh } = this.#paths;
    writePrivate(
      credentials,
      formatCreds(server.keys.mintUser({ tenant: TENANT, user: this.#options.user })),
    );
    writePrivate(observer, formatCreds(server.keys.mintObserver({ tenant: TENANT })));
    writePrivate(operator, formatCreds(ours));
    const address = { url: server.url, credentials };
    writePrivate(mesh, `${JSON.stringify(address)}\n`);
    this.#watchPool(this.#operator);
    this.#log.info({ url: server.url, pool: this.#pool.pid, nats: server.pid }, "up");
    return address;
  }

  /** After a disk that was full nats-server takes no record until it is started again, however much room there is. And a
   * pool that hangs is told by that it answers nothing. */
  #watchPool(operator: Link): void {
    let unanswered = 0;
    const look = async (): Promise<void> => {
      if (this.#stopping) return;
      // Of no run: while they can be written it is not found.
      const answer = await askPool(operator, "renew", { run: "none" }, RenewAnswer).catch(
        (error: unknown) => error,
      );
      if (this.#stopping) return;
      unanswered = answer instanceof DeadlineError && operator.awayMs === 0 ? unanswered + 1 : 0;
      if (unanswered === POOL_UNANSWERED) {
        this.#log.warn({}, "the pool does not answer; starting it again");
        unanswered = 0;
        this.#pool?.kill();
      }
      if (!(answer instanceof PoolUnavailableError && answer.reason === "records")) return;
      const { bsize, bavail } = statfsSync(this.#paths.nats);
      if (this.#stopping || bsize * bavail < ROOM_BYTES) return;
      this.#log.warn({}, "the disk has room again; starting nats-server again");
      await this.#server?.stop();
    };
    const again = (): void => {
      setTimeout(
        () =>
          void look()
            .catch(() => undefined)
            .then(again),
        RECORDS_MS,
      ).unref();
    };
    again();
  }

  /** Starts nats-server, and again on the same port whenever it ends: clients and daemons come back by themselves. */
  async #startServer(port: number): Promise<Server> {
    const server = await startServer({ stateDir: this.#paths.nats, port });
    this.#server = server;
    server.exited.then(async (exit) => {
      if (this.#stopping) return;
      this.#log.warn({ ...exit }, "nats-server ended; starting it again");
      await this.#startServer(server.port).catch((error) => {
        this.#log.error({ error: toSandmeshError(error).message }, "nats-server does not start; ending");
        this.#stopping = true;
        process.exit(1);
      });
    });
    return server;
  }

  /** Its owner is gone, also in the middle of ending it: nobody reads what it left. */
  orphaned(): void {
    this.#orphaned = true;
  }

  /** Ends all: sandboxes first, then the pool, then nats-server. */
  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  async #stop(): Promise<void> {
    this.#stopping = true;
    const removed = !existsSync(this.#paths.home);
    this.#remove(this.#paths.mesh);
    const leases =
      this.#operator === undefined
        ? 0
        : await drain(this.#operator).catch((error) => {
            this.#log.error({ error: toSandmeshError(error).message }, "could not drain");
            return null;
          });
    await this.#pool?.stop(10_000);
    await this.#operator?.close();
    await endLocal(this.#paths, this.#log).catch((error) => {
      this.#log.error({ error: toSandmeshError(error).message }, "could not end the local provider");
    });
    const onMachine = await leftBehind(this.#paths).catch((error) => {
      this.#log.error({ error: toSandmeshError(error).message }, "could not count what is left");
    });
    await this.#server?.stop();
    this.#log.info({ ...onMachine, leases }, "down");
    const { home } = this.#paths;
    if (removed) {
      // What ending it has made anew. Another mesh's home it is not yet.
      if (claimOf(this.#paths) === "nobody's") this.#remove(home);
      return;
    }
    if (onMachine !== undefined) {
      if (this.#orphaned && this.#options.temporary && nothingLeft(onMachine)) return this.#remove(home);
      const left: Left = { ...onMachine, leases };
      writePrivate(join(home, "down.json"), `${JSON.stringify(left)}\n`);
    }
    for (const file of endsWithMesh(this.#paths)) this.#remove(file);
  }

  /** Never what has become another's. */
  #remove(path: string): void {
    if (claimOf(this.#paths) === "another's") return;
    try {
      rmSync(path, { recursive: true, force: true });
    } catch (error) {
      this.#log.error({ path, error: toSandmeshError(error).message }, "could not be removed");
    }
  }
}

if (import.meta.main) {
  const home = process.argv[2];
  if (home === undefined) throw new Error("usage: supervisor.ts HOME");
  const fail = (message: string) => {
    process.stderr.write(`${message}\n`);
    process.exit(1);
  };
  try {
    const other = claimHome(makeHome(home));
    if (other !== undefined) fail(`a mesh is up already in ${home} (pid ${other.pid})`);
  } catch (error) {
    fail(toSandmeshError(error).message);
  }
  const options = check(UpOptions, JSON.parse(process.env.SANDMESH_UP ?? "{}"));
  const mesh = new Mesh(home, options);
  const end = async () => {
    await mesh.stop();
    process.exit(0);
  };
  const endAlone = () => {
    mesh.orphaned();
    void end();
  };
  setInterval(() => {
    const claim = claimOf(homePaths(home));
    // The other's files are not to be touched; the kernel ends the children.
    if (claim === "another's") process.exit(0);
    if (claim === "nobody's") void end();
  }, CLAIM_MS);
  process.on("SIGTERM", end);
  process.on("SIGINT", end);
  // Whoever waits for the line below was interrupted: what they began ends with them.
  process.stdout.on("error", end);
  if (options.owned) process.stdin.on("close", endAlone).resume();
  try {
    const address = await mesh.start();
    process.stdout.write(`${JSON.stringify(address)}\n`);
  } catch (error) {
    const { message } = toSandmeshError(error);
    // What cannot be ended either does not hide why it did not start.
    await mesh.stop().catch((also) => process.stderr.write(`${toSandmeshError(also).message}\n`));
    fail(message);
  }
}
