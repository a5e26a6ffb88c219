// The daemon's entry: `sandmesh-agent` starts it in a sandbox. Enrols, says ready, executes until it is released.
import { stat, statSync } from "node:fs";
import { type Bootstrap, InvalidRequestError, toSandmeshError } from "../broker/contract/core.ts";
import {
  type End,
  type Executor,
  openEndpoint,
  RETENTION,
  type Retention,
} from "../broker/endpoint/index.ts";
import { dropBlocks } from "../broker/link/blocks.ts";
import { resolveUser } from "./exec/user.ts";
import { Engine } from "./native/engine.ts";
import { readBootstrap } from "./process/bootstrap.ts";
import { dialer } from "./process/dial.ts";
import { bytesOf, commandEnvironment, type Environment } from "./process/environment.ts";
import { intakeOf } from "./process/intake.ts";
import { LOG_LEVELS, type LogLevel, lazyLog } from "./process/log.ts";
import { memoryLimitBytes } from "./process/oom.ts";
import { readArguments } from "./process/options.ts";
import { restWhenIdle } from "./process/rest.ts";
import { settleProcess } from "./process/settle.ts";
import { followTimers } from "./process/timers.ts";
import { DAEMON_VERSION } from "./process/version.ts";

/** How the daemon ends; what its parent (a provider, a container engine) sees. The launcher answers 5 itself. */
export const EXIT = {
  /** Released by the pool, or asked to end by a signal. */
  ended: 0,
  /** A fault of its own; the log says which. */
  fault: 1,
  /** Options or bootstrap are wrong. */
  usage: 2,
  /** Not enrolled or not connected within the bootstrap's time, or refused. */
  notReady: 3,
  /** The pool was not heard for too long (dead man's switch), or the connection is gone for good. */
  abandoned: 4,
  /** No /proc, /dev/urandom or /dev/null, or no loader beside the launcher. */
  cannotRun: 5,
} as const;

/** Between SIGTERM to all commands and SIGKILL, ms. */
const GRACE_MS = 1000;

/** Of a small sandbox's memory, the part for output that is kept for who asks again, and the least that is. */
const KEPT_SHARE = 1 / 16;
const KEPT_MIN_BYTES = 4 * 1024 * 1024;

/** Of a small sandbox's memory, the part for the pipe of one command that writes much, and the least, which is the
 * kernel's default. (At 64 MiB a few dozen with half a MiB each, whose readers are slow, would take all of it.) */
const PIPE_SHARE = 1 / 1024;
const PIPE_MIN_BYTES = 64 * 1024;

function retention(limit: number | undefined): Retention {
  if (limit === undefined) return RETENTION;
  return { ...RETENTION, bytes: Math.min(RETENTION.bytes, Math.max(KEPT_MIN_BYTES, limit * KEPT_SHARE)) };
}

const USAGE = `usage: sandmesh-agent [--bootstrap FILE] [--log FILE] [--log-level ${LOG_LEVELS.join("|")}] [--version]

Runs in a sandbox, started by a provider. What it is to do comes as JSON in SANDMESH_BOOTSTRAP or FILE.`;

type DaemonLog = ReturnType<typeof lazyLog>;

interface Options {
  native: string | undefined;
  bootstrap: { file?: string; fd?: number };
  log: { level: LogLevel; file?: string };
  say: string | undefined;
}

/** Throws InvalidRequestError on what it does not know. */
function readOptions(args: string[]): Options {
  const { texts: values, flags } = readArguments(
    args,
    ["native", "bootstrap", "bootstrap-fd", "log", "log-level"],
    ["version", "help"],
  );
  const fd = values["bootstrap-fd"];
  const level = LOG_LEVELS.find((name) => name === (values["log-level"] ?? "warn"));
  if (level === undefined)
    throw new InvalidRequestError(`--log-level must be one of ${LOG_LEVELS.join(", ")}`, {
      field: "log-level",
    });
  return {
    native: values.native,
    bootstrap: {
      ...(values.bootstrap !== undefined && { file: values.bootstrap }),
      ...(fd !== undefined && values.bootstrap === undefined && { fd: Number(fd) }),
    },
    log: { level, ...(values.log !== undefined && { file: values.log }) },
    say: flags.has("version") ? DAEMON_VERSION : flags.has("help") ? USAGE : undefined,
  };
}

async function nativePath(given: string | undefined): Promise<string> {
  // Without the launcher this is a checkout.
  return given ?? (await import("./native/compile.ts")).checkoutNative();
}

/** As container engines do, HOME is the user's where the image does not say. */
function withHome(environment: Environment): Environment {
  if (environment.has("HOME")) return environment;
  const home = resolveUser(String(process.getuid?.() ?? 0))?.home ?? "/";
  return new Map(environment).set("HOME", bytesOf(home));
}

/** The sandbox's working folder: the bootstrap's where it is one, otherwise where the image put the daemon. */
function workingFolder({ cwd }: Bootstrap): string {
  const isFolder = cwd !== undefined && (statSync(cwd, { throwIfNoEntry: false })?.isDirectory() ?? false);
  return cwd !== undefined && isFolder ? cwd : process.cwd();
}

/** Runs the daemon to its end; answers its exit code. */
async function runDaemon(args: string[]): Promise<number> {
  let options: Options;
  try {
    options = readOptions(args);
  } catch (thrown) {
    console.error(`sandmesh-agent: ${thrown instanceof Error ? thrown.message : String(thrown)}\n${USAGE}`);
    return EXIT.usage;
  }
  if (options.say !== undefined) {
    console.log(options.say);
    return EXIT.ended;
  }
  const log = lazyLog(options.log);
  process.on("uncaughtException", (error) =>
    log.error({ error: String(error), stack: error.stack }, "uncaught"),
  );
  process.on("unhandledRejection", (error) => log.error({ error: String(error) }, "unhandled rejection"));
  try {
    return await live(options, log);
  } catch (thrown) {
    const error = toSandmeshError(thrown);
    log.error({ code: error.code, error: error.message }, "the daemon ends");
    if (error instanceof InvalidRequestError) return EXIT.usage;
    return error.code === "internal" ? EXIT.fault : EXIT.notReady;
  } finally {
    await log.flushed();
  }
}

interface ExecutorParts {
  engine: Engine;
  /** The daemon's own. */
  own: Environment;
  /** Of commands. */
  environment: Environment;
  cwd: string;
  entrypoint: Bootstrap["entrypoint"];
  log: DaemonLog;
}

/** What executes is loaded while the pool answers. */
async function loadExecutor({ own, entrypoint, log, ...parts }: ExecutorParts): Promise<Executor> {
  const [{ Commands }, { createExecutor }, { Groups, GROUPS_FD }] = await Promise.all([
    import("./exec/exec.ts"),
    import("./executor.ts"),
    import("./exec/groups.ts"),
  ]);
  const { engine } = parts;
  const groups = () => Groups.open(own.get(GROUPS_FD), (folder) => engine.mayGroup(folder));
  const commands = new Commands({ ...parts, groups });
  if (entrypoint !== undefined) {
    const { startEntrypoint } = await import("./process/entrypoint.ts");
    startEntrypoint(commands, entrypoint, log);
  }
  return createExecutor({ ...parts, commands });
}

async function live(options: Options, log: DaemonLog): Promise<number> {
  const later = globalThis.setTimeout;
  const timers = followTimers();
  const engine = await Engine.open(await nativePath(options.native));
  const own = settleProcess(engine);
  const limit = memoryLimitBytes();
  if (limit !== undefined)
    engine.setPipe(Math.max(PIPE_MIN_BYTES, Math.min(limit * PIPE_SHARE, 0x7fff_ffff)));
  const text = process.env.SANDMESH_BOOTSTRAP;
  delete process.env.SANDMESH_BOOTSTRAP;
  const bootstrap = readBootstrap({ ...options.bootstrap, ...(text !== undefined && { text }) });
  const environment = withHome(commandEnvironment(own, bootstrap.env));
  const cwd = workingFolder(bootstrap);
  // The runtime's thread for files, as long as there is room for one: where commands have used up the sandbox's pids it
  // could not start it, and the request would wait for ever.
  stat("/", () => {});
  // A folder that the image wants to unmount or remove must not be held by the daemon.
  process.chdir("/");
  let stop: (() => void) | undefined;
  const stopped = new Promise<void>((resolve) => {
    stop = resolve;
  });
  for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) process.on(signal, () => stop?.());
  const { relay } = bootstrap;
  const opening = openEndpoint({
    bootstrap,
    ...(relay !== undefined && { dial: dialer(engine, relay) }),
    intake: intakeOf(engine),
    executor: () => loadExecutor({ engine, own, environment, cwd, entrypoint: bootstrap.entrypoint, log }),
    log,
    graceMs: GRACE_MS,
    retention: retention(limit),
  });
  // A signal before readiness: nothing runs yet.
  const endpoint = await Promise.race([opening, stopped.then(() => undefined)]);
  if (endpoint === undefined) return EXIT.ended;
  const { sandbox } = bootstrap;
  log.info({ sandbox, incarnation: endpoint.incarnation, version: DAEMON_VERSION }, "ready");
  restWhenIdle({
    timers,
    rest: (maxMs) => engine.rest(maxMs),
    shrink: () => {
      dropBlocks();
      Bun.shrink();
    },
    requests: () => endpoint.counters.requests,
    connected: () => endpoint.connected,
    now: () => performance.now(),
    later,
  });
  const end = await Promise.race([endpoint.ended, stopped.then(() => undefined)]);
  if (end === undefined) await endpoint.close();
  return exitCode(end);
}

function exitCode(end: End | undefined): number {
  switch (end?.why) {
    case undefined:
    case "released":
    case "closed":
      return EXIT.ended;
    case "dead_man":
    case "disconnected":
      return EXIT.abandoned;
  }
}

if (import.meta.main) process.exit(await runDaemon(process.argv.slice(2)));
