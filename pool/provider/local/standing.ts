// How far a sandbox has come, by what lies in its folder and what the kernel says, whoever made it.
import { stat } from "node:fs/promises";
import { join } from "node:path";
import { Exit, Identity, type Layout, Meta, readRecord } from "./layout.ts";
import { isAlive } from "./processes.ts";

export interface Standing {
  /** Undefined where it is not there, or not whole. */
  meta: Meta | undefined;
  /** `unfinished`: who was making it ended before anything of it ran, so that it may be made anew. `ended`: it ran, or
   * was refused by the kernel, and will not run again. */
  phase: "starting" | "running" | "unfinished" | "ended";
  exit: Exit | undefined;
}

/** Of the folder `name`; undefined where there is none. */
export async function standingOf(
  layout: Layout,
  sandbox: string,
  name: string,
): Promise<Standing | undefined> {
  const folder = layout.folder(name);
  const meta = await readRecord(Meta, join(folder, "meta.json"));
  if (meta === undefined && (await stat(folder).catch(() => undefined)) === undefined) return undefined;
  // The supervisor first: it writes of the first process, and lives longer.
  const supervisor = await readRecord(Identity, join(folder, "supervisor"));
  const attended = isAlive(supervisor);
  const first = await readRecord(Identity, join(folder, "running"));
  if (isAlive(first)) return { meta, phase: "running", exit: undefined };
  const exit = await readRecord(Exit, join(layout.exits, sandbox));
  // A supervisor may be there still: it waits for the pool that will remove the rest.
  if (attended && exit === undefined) return { meta, phase: "starting", exit };
  return { meta, phase: first === undefined && exit === undefined ? "unfinished" : "ended", exit };
}
