// What a sandbox shall be.
import * as v from "valibot";
import { Id } from "../ids.ts";
import { Env, MAX_SAFE, map, Path, text, whole } from "./common.ts";

const Volume = v.object({
  name: Id,
  source: text("Provider's name of the data: a folder (local), a claim or image (kubernetes)", 4096, 1),
  mount_path: Path,
  /** Data volumes are read-only, so that sandboxes of many runs share one copy. */
  read_only: v.optional(v.literal(true, "data volumes are read-only"), true),
});

const plain = (path: string): string => path.replace(/\/+(?=\/|$)/g, "");

const differ = (volumes: v.InferOutput<typeof Volume>[]): boolean =>
  new Set(volumes.map((volume) => plain(volume.mount_path))).size === volumes.length;

const Sidecar = v.object({
  name: Id,
  image: text("Image reference", 4096, 1),
  command: v.optional(v.array(text("Argument", 128 * 1024))),
  env: v.optional(Env),
});

const Network = v.union(
  [v.picklist(["none", "host"]), v.pipe(v.string(), v.regex(/^policy:[a-z0-9][a-z0-9-]{0,62}$/))],
  'must be "none", "host" or "policy:<name>"',
);

/** The whole wish. Each provider refuses what it cannot do, by field, with UnsupportedError. */
export const SandboxSpec = v.object({
  image: text(
    "What to run: an image reference; with the local provider `host`, a folder or an archive",
    4096,
    1,
  ),
  image_pull_secrets: v.optional(v.array(Id)),
  cpu: v.optional(v.pipe(v.number(), v.minValue(0.01), v.maxValue(1024), v.description("Cores"))),
  memory_bytes: v.optional(whole("Memory limit, bytes", MAX_SAFE, 16 * 1024 * 1024)),
  disk_bytes: v.optional(whole("Writable layer's limit, bytes", MAX_SAFE, 1024 * 1024)),
  pids: v.optional(whole("Processes and threads at once", 4_194_304, 16)),
  env: v.optional(Env),
  user: v.optional(text("Name or uid, optionally :group or :gid; default the image's", 128, 1)),
  cwd: v.optional(Path),
  network: v.optional(Network),
  volumes: v.optional(
    v.pipe(v.array(Volume), v.maxLength(64), v.check(differ, "two volumes have the same mount_path")),
  ),
  sidecars: v.optional(v.pipe(v.array(Sidecar), v.maxLength(16))),
  extended_resources: v.optional(map(v.string(), whole("Units", 1024))),
  entrypoint: v.optional(v.pipe(v.boolean(), v.description("Also start the image's own entrypoint"))),
  template: v.optional(v.pipe(Id, v.description("Warm stock to take it from"))),
  provider: v.optional(
    v.pipe(Id, v.description("Which of the pool's providers; default by its weights, of those that can")),
  ),
  labels: v.optional(map(v.pipe(v.string(), v.maxLength(63)), v.pipe(v.string(), v.maxLength(63)))),
});
export type SandboxSpec = v.InferOutput<typeof SandboxSpec>;
