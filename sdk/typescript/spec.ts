// What a sandbox shall be, as a user writes it, and as the wire carries it.
import { check, SandboxSpec } from "../../broker/contract/index.ts";
import { invalid, type Names, onlyKnown } from "./arguments.ts";
import { bytes, type Size } from "./units.ts";

export interface SpecOptions {
  /** Image reference; with the local provider `host`, a root file system folder or an image archive. */
  image: string;
  /** Names of credentials for private registries. */
  imagePullSecrets?: string[];
  /** Cores, 0.01 to 1024. */
  cpu?: number;
  /** Limit, bytes or "2GiB"; at least 16 MiB. */
  memory?: Size;
  /** Limit of what may be written, bytes or "10GiB"; at least 1 MiB. */
  disk?: Size;
  /** Processes and threads at once, at least 16; the local provider's limit where none is asked for is 4096. */
  pids?: number;
  /** Added to the image's environment; null removes a variable. */
  env?: Record<string, string | null>;
  /** Name or uid, optionally `:group`; default the image's. */
  user?: string;
  /** Working folder of commands; default the image's. */
  cwd?: string;
  network?: "none" | "host" | `policy:${string}`;
  /** Read-only data. */
  volumes?: { name: string; source: string; mountPath: string }[];
  sidecars?: { name: string; image: string; command?: string[]; env?: Record<string, string | null> }[];
  /** Such as `{ "nvidia.com/gpu": 1 }`. */
  extendedResources?: Record<string, number>;
  /** Also start the image's own entrypoint. */
  entrypoint?: boolean;
  /** Warm stock to take it from. */
  template?: string;
  /** Which of the pool's providers; default by its weights, of those that can. */
  provider?: string;
  labels?: Record<string, string>;
}

type Volume = NonNullable<SpecOptions["volumes"]>[number];
const VOLUME_NAMES: Names<Volume> = { name: true, source: true, mountPath: true };

type Optional<T> = { [K in keyof T]: undefined extends T[K] ? K : never }[keyof T];
/** T, with what may be undefined left out instead. */
export type Defined<T> = { [K in Exclude<keyof T, Optional<T>>]: T[K] } & {
  [K in Optional<T>]?: Exclude<T[K], undefined>;
};

/** Drops keys whose value is undefined, as `exactOptionalPropertyTypes` and the wire want it. */
export function defined<T extends object>(value: T): Defined<T> {
  const left: Partial<T> = {};
  for (const key in value) if (value[key] !== undefined) left[key] = value[key];
  return left as Defined<T>;
}

const NAMES: Names<SpecOptions> = {
  image: true,
  imagePullSecrets: true,
  cpu: true,
  memory: true,
  disk: true,
  pids: true,
  env: true,
  user: true,
  cwd: true,
  network: true,
  volumes: true,
  sidecars: true,
  extendedResources: true,
  entrypoint: true,
  template: true,
  provider: true,
  labels: true,
};

/** Throws InvalidRequestError that names the field at fault, before anything is sent. */
export function specOf(options: SpecOptions): SandboxSpec {
  onlyKnown(options, NAMES);
  if (options.volumes !== undefined && !Array.isArray(options.volumes))
    throw invalid("volumes", "must be a list");
  return check(
    SandboxSpec,
    defined({
      image: options.image,
      image_pull_secrets: options.imagePullSecrets,
      cpu: options.cpu,
      memory_bytes: options.memory === undefined ? undefined : bytes(options.memory, "memory"),
      disk_bytes: options.disk === undefined ? undefined : bytes(options.disk, "disk"),
      pids: options.pids,
      env: options.env,
      user: options.user,
      cwd: options.cwd,
      network: options.network,
      volumes: options.volumes?.map((volume) => {
        onlyKnown(volume, VOLUME_NAMES);
        const { mountPath: mount_path, ...rest } = volume;
        return { ...rest, mount_path };
      }),
      sidecars: options.sidecars,
      extended_resources: options.extendedResources,
      entrypoint: options.entrypoint,
      template: options.template,
      provider: options.provider,
      labels: options.labels,
    }),
  );
}
