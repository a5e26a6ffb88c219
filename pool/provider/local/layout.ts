// The state folder: where everything of one mesh's local sandboxes lies, and what each file says.
import { createHash } from "node:crypto";
import { mkdirSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { isAbsolute, join, normalize } from "node:path";
import * as v from "valibot";
import { InvalidRequestError } from "../../../broker/contract/index.ts";
import { realPath } from "../../../broker/credentials/real-path.ts";

/** Where the daemon, the relay's socket and nothing else stand inside a sandbox. */
export const INSIDE = "/.sandmesh";
/** A sandbox's folder while it is removed. No id has this character. */
export const REMOVING = "~";

/** What create writes first. */
export const Meta = v.object({
  sandbox: v.string(),
  tenant: v.string(),
  run: v.string(),
  uid: v.string(),
  image: v.string(),
});
export type Meta = v.InferOutput<typeof Meta>;

/** A process by pid and start time (clock ticks after boot), since pids come again. */
export const Identity = v.object({ pid: v.number(), start: v.number() });
export type Identity = v.InferOutput<typeof Identity>;

/** What the supervisor says of the end (launch/launcher.py): the status as Python has it, negative for signals; or what
 * the launcher says, where the supervisor itself was killed (launch/attend.py). */
export const Exit = v.object({
  code: v.number(),
  expired: v.boolean(),
  /** By the kernel, for memory (launch/oom.py). Not known of a supervisor that was killed, or whose program was older than
   * that: of these it is `daemon_died`. */
  oom: v.optional(v.boolean(), false),
  pid: v.number(),
  supervisor: v.optional(v.boolean(), false),
});
export type Exit = v.InferOutput<typeof Exit>;

export class Layout {
  /** The folder itself, whatever links lead there. */
  readonly stateDir: string;
  /** In the source of each mount and in the name of each cgroup, so that what is left can be found without files. */
  readonly mark: string;
  readonly sandboxes: string;
  readonly exits: string;
  readonly relay: string;
  readonly layers: string;

  constructor(stateDir: string) {
    if (!isAbsolute(stateDir) || normalize(stateDir) !== stateDir) {
      throw new InvalidRequestError(`the state folder must be an absolute path, not ${stateDir}`, {
        field: "stateDir",
      });
    }
    this.stateDir = realPath(stateDir);
    this.mark = `sandmesh-${createHash("sha256").update(this.stateDir).digest("hex").slice(0, 12)}`;
    this.sandboxes = join(this.stateDir, "sandboxes");
    this.exits = join(this.stateDir, "exits");
    this.relay = join(this.stateDir, "relay");
    this.layers = join(this.stateDir, "layers");
  }

  make(): void {
    mkdirSync(this.stateDir, { recursive: true, mode: 0o700 });
    // 0700: below lie set-user-id programs that a sandbox's root may have written.
    for (const folder of [this.sandboxes, this.exits, this.relay, this.layers]) {
      mkdirSync(folder, { recursive: true, mode: 0o700 });
    }
  }

  folder(sandbox: string): string {
    return join(this.sandboxes, sandbox);
  }
}

/** A file's checked content, or undefined where it is not there or not whole. */
export async function readRecord<S extends v.GenericSchema>(
  schema: S,
  path: string,
): Promise<v.InferOutput<S> | undefined> {
  try {
    const result = v.safeParse(schema, JSON.parse(await readFile(path, "utf8")));
    return result.success ? result.output : undefined;
  } catch {
    return undefined;
  }
}

/** The names in a folder; none where there is no folder. */
export async function namesIn(folder: string): Promise<string[]> {
  try {
    return await readdir(folder);
  } catch {
    return [];
  }
}
