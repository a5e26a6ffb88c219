// The options that say what a sandbox shall be, for `run` and `acquire`.
import { existsSync } from "node:fs";
import { isAbsolute, resolve } from "node:path";
import { type Command, InvalidArgumentError } from "commander";
import { ImageError, type Sandbox, type SpecOptions } from "../typescript/mod.ts";
import { defined } from "../typescript/spec.ts";
import type { Output } from "./output.ts";
import { collectEnv, countFrom, ENV_HELP, parseCores, parseLease, parseLimit, sizeFrom } from "./units.ts";

export interface SpecFlags {
  cpu?: number;
  memory?: number;
  disk?: number;
  pids?: number;
  env?: Record<string, string>;
  user?: string;
  workdir?: string;
  network?: SpecOptions["network"];
  volume?: { name: string; source: string; mountPath: string }[];
  provider?: string;
  run?: string;
  lease?: number;
  wait?: number;
}

/** "/data/set:/mnt/set", "./set:/mnt/set": a folder, read-only inside; on Kubernetes also "claim:NAME:/mnt/set". */
export function collectVolume(
  text: string,
  soFar: SpecFlags["volume"] = [],
): NonNullable<SpecFlags["volume"]> {
  // A source may have a colon; where it is mounted in the sandbox stands behind the last one.
  const colon = text.lastIndexOf(":");
  const [source, mountPath] = [text.slice(0, Math.max(0, colon)), text.slice(colon + 1)];
  if (source === "" || !mountPath.startsWith("/"))
    throw new InvalidArgumentError("not SOURCE:PATH, such as ./set:/mnt/set");
  return [...soFar, { name: `data-${soFar.length}`, source: localImage(source), mountPath }];
}

const isPolicy = (text: string): text is `policy:${string}` => /^policy:[a-z0-9][a-z0-9-]{0,62}$/.test(text);

function parseNetwork(text: string): NonNullable<SpecOptions["network"]> {
  if (text === "none" || text === "host" || isPolicy(text)) return text;
  throw new InvalidArgumentError("not none, host or policy:NAME");
}

export function addSpecOptions(command: Command, lease: string): Command {
  return command
    .option("--cpu <cores>", "cores, such as 1 or 0.5", parseCores)
    .option("-m, --memory <size>", "memory limit, such as 512m or 2GiB", sizeFrom("16m"))
    .option("--disk <size>", "limit of what may be written", sizeFrom("1m"))
    .option("--pids <n>", "processes and threads at once", countFrom(16))
    .option("-e, --env <KEY=VALUE>", ENV_HELP, collectEnv)
    .option("-u, --user <name>", "name or uid, optionally :group")
    .option("-w, --workdir <path>", "working folder of commands")
    .option("--network <mode>", "none (the default), host or policy:NAME", parseNetwork)
    .option(
      "-v, --volume <source:path>",
      "read-only data, such as ./set:/mnt/set (again for more)",
      collectVolume,
    )
    .option("--provider <name>", "which of the pool's providers")
    .option("--run <id>", "the run that it belongs to; default one of its own")
    .option("--lease <duration>", `lives this long without renewal; default ${lease}`, parseLease)
    .option("--wait <duration>", "for a sandbox at most this long; default 5m", parseLimit);
}

/** Of the argument that it is. */
export const IMAGE_HELP =
  "a reference, a folder or an archive (./rootfs, ./image.tar), or host: this machine's own";

/** A path as a shell has it, "./rootfs", "../image.tar", is one of this process's folder; no reference starts with a dot. */
export const localImage = (image: string): string => (/^\.\.?(\/|$)/.test(image) ? resolve(image) : image);

/** Of an image that is none it is told where a file or folder here has that name, and how that is written. */
export async function namingImage<T>(image: string, acquired: Promise<T>): Promise<T> {
  try {
    return await acquired;
  } catch (error) {
    const isName = localImage(image) === image && !isAbsolute(image);
    if (!(error instanceof ImageError && isName && existsSync(image))) throw error;
    const hint = `The ${image} of this folder is ./${image}.`;
    throw new ImageError(`${error.message} ${hint}`, { ...error.toWire(), cause: error });
  }
}

/** The options as the SDK takes them. */
export function acquireOptions(image: string, flags: SpecFlags): SpecOptions & AcquireFlags {
  return defined({
    image: localImage(image),
    cpu: flags.cpu,
    memory: flags.memory,
    disk: flags.disk,
    pids: flags.pids,
    env: flags.env,
    user: flags.user,
    cwd: flags.workdir,
    network: flags.network,
    volumes: flags.volume,
    provider: flags.provider,
    run: flags.run,
    lease: flags.lease,
    timeout: flags.wait,
  });
}

interface AcquireFlags {
  run?: string;
  lease?: number;
  timeout?: number;
}

/** Tells what was asked for and is not so. */
export function warn(output: Output, box: Sandbox): void {
  for (const warning of box.grant?.warnings ?? []) output.warn(warning);
}
