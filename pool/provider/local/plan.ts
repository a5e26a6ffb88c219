// From a request and its image to the launcher's plan: pure but for reading the machine's own names.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { type Bootstrap, UnsupportedError } from "../../../broker/contract/index.ts";
import type { CreateRequest } from "../provider.ts";
import type { SandboxCgroups } from "./cgroups.ts";
import { dataTypes } from "./file-systems.ts";
import type { ImageConfig, ResolvedImage } from "./image/image.ts";
import type { Plan } from "./launch/launcher.ts";
import { INSIDE, type Layout } from "./layout.ts";
import { SANDBOX_SOCKET } from "./relay/relay-process.ts";
import type { Secrets } from "./secrets.ts";
import { volumesOf } from "./spec.ts";

const DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

export interface PlanInput {
  layout: Layout;
  request: CreateRequest;
  image: ResolvedImage;
  cgroups: SandboxCgroups;
  /** Where no cgroup bounds them: processes and threads in the sandbox's user namespace. */
  nproc: number | undefined;
  diskBytes: number | undefined;
  shmBytes: number;
  root: boolean;
  daemonDir: string;
  /** As seen inside. */
  daemonArgv: string[];
  secrets: Secrets;
  isolation: string[];
}

/** Throws UnsupportedError where the image has no entrypoint to start, InvalidRequestError where a volume cannot be. */
export function makePlan(input: PlanInput): Plan {
  const { layout, request, image, root } = input;
  const { sandbox, spec } = request;
  const network = spec.network === "host" ? "host" : "none";
  const host = image.kind === "host";
  const env = environmentOf(image.config, request.bootstrap.env, spec.env);
  const cwd = spec.cwd ?? request.bootstrap.cwd ?? workingDirOf(image.config);
  const own: Record<string, string> = { daemon: input.daemonDir };
  if (network === "none") own.relay = join(layout.relay, sandbox);
  return {
    sandbox,
    mark: `${layout.mark}/${sandbox}`,
    folder: layout.folder(sandbox),
    exits: layout.exits,
    max_life_ms: request.maxLifeMs,
    userns: !root,
    lowers: image.lowers,
    image_identity: image.identity,
    split: host && !root,
    fresh: host,
    network,
    cgroup_tasks: input.cgroups.tasks,
    cgroup_folder: input.cgroups.folder,
    cgroup_commands: input.cgroups.commands,
    cgroup_oom: input.cgroups.oom,
    cgroup_views: input.cgroups.views,
    // One more for the supervisor, which is in that namespace too.
    nproc: input.nproc === undefined ? null : input.nproc + 1,
    disk_bytes: input.diskBytes ?? null,
    shm_bytes: input.shmBytes,
    own,
    volumes: volumesOf(spec, input.secrets),
    data_types: spec.volumes?.length ? dataTypes() : [],
    hidden: host ? [...input.secrets.paths()] : [],
    etc: etcOf(sandbox, network),
    // As container engines do: the working folder is there, also where the image has none of that name.
    make_folders: workingFolders(image.config, spec.cwd),
    user: spec.user ?? (image.config.User || null),
    argv: input.daemonArgv,
    env: { PATH: DEFAULT_PATH },
    bootstrap: bootstrapOf(request, env, cwd, network, input.isolation),
    entrypoint: spec.entrypoint === true ? entrypointOf(image.config, env, cwd) : null,
  };
}

/** As engines do, a relative one is from the root. */
function workingDirOf({ WorkingDir: own }: ImageConfig): string {
  return own?.startsWith("/") ? own : `/${own ?? ""}`;
}

function workingFolders(config: ImageConfig, wish: string | undefined): Plan["make_folders"] {
  const folders: Plan["make_folders"] = [];
  if (config.WorkingDir) folders.push({ path: workingDirOf(config), kind: "image", field: "spec.image" });
  if (wish !== undefined) folders.push({ path: wish, kind: "request", field: "spec.cwd" });
  return folders;
}

function bootstrapOf(
  request: CreateRequest,
  env: Record<string, string>,
  cwd: string,
  network: "none" | "host",
  isolation: string[],
): Bootstrap {
  const bootstrap: Bootstrap = { ...request.bootstrap, image: request.spec.image, env, cwd, isolation };
  if (network === "none") bootstrap.relay = `${INSIDE}/relay/${SANDBOX_SOCKET}`;
  return bootstrap;
}

/** The image's, then the pool's, then the spec's own; null takes a variable away. */
function environmentOf(
  config: ImageConfig,
  pool: Record<string, string> | undefined,
  wish: Record<string, string | null> | undefined,
): Record<string, string> {
  const env: Record<string, string> = { PATH: DEFAULT_PATH };
  for (const line of config.Env ?? []) {
    const at = line.indexOf("=");
    if (at > 0) env[line.slice(0, at)] = line.slice(at + 1);
  }
  Object.assign(env, pool);
  for (const [name, value] of Object.entries(wish ?? {})) {
    if (value === null) delete env[name];
    else env[name] = value;
  }
  return env;
}

function entrypointOf(config: ImageConfig, env: Record<string, string>, cwd: string): Plan["entrypoint"] {
  const argv = [...(config.Entrypoint ?? []), ...(config.Cmd ?? [])];
  if (argv.length > 0) return { argv, env, cwd };
  throw new UnsupportedError("spec.entrypoint: this image has no entrypoint", { field: "spec.entrypoint" });
}

function etcOf(sandbox: string, network: "none" | "host"): Record<string, string> {
  const machine = (name: string): string => {
    try {
      return readFileSync(`/etc/${name}`, "utf8");
    } catch {
      return "";
    }
  };
  const hosts = `127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\t${sandbox}\n`;
  return {
    hostname: `${sandbox}\n`,
    hosts: network === "host" ? `${machine("hosts")}\n127.0.1.1\t${sandbox}\n` : hosts,
    "resolv.conf": network === "host" ? machine("resolv.conf") : "# this sandbox has no network\n",
  };
}
