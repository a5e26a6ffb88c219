// Ends a sandbox and verifies that nothing of it is left. Everything here may be repeated, and begun at any point.
import { rename, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { ProviderError } from "../../../broker/contract/index.ts";
import type { Cgroups } from "./cgroups.ts";
import { Identity, type Layout, REMOVING, readRecord } from "./layout.ts";
import { findMarked, isAlive, kill, killAll } from "./processes.ts";
import type { RelayClient } from "./relay/relay.ts";

const GONE_DEADLINE_MS = 15_000;

export interface Removal {
  layout: Layout;
  cgroups: Cgroups;
  relay: RelayClient;
}

/** Throws ProviderError, naming what is left, when it is not gone in time. */
export async function removeSandbox({ layout, cgroups, relay }: Removal, sandbox: string): Promise<void> {
  const folder = layout.folder(sandbox);
  const removing = folder + REMOVING;
  // Renamed first: a launch that is under way finds no folder any more and gives up.
  await rename(folder, removing).catch(() => undefined);
  const supervisor = await readRecord(Identity, join(removing, "supervisor"));
  const first = await readRecord(Identity, join(removing, "running"));
  kill(first);
  // A supervisor that has no first process yet would still make one.
  if (first === undefined) kill(supervisor);
  const until = Date.now() + GONE_DEADLINE_MS;
  // Without its records (someone removed the folder) the kernel knows it: by its group, and by its mounts.
  if (first === undefined) await killUnrecorded({ cgroups, layout }, sandbox);
  // The kernel lets a namespace's first process go only after all others of it have gone.
  await waitFor(
    () => !isAlive(first) && !isAlive(supervisor),
    until,
    () => {
      kill(first);
      kill(supervisor);
    },
  );
  await waitFor(() => cgroups.remove(sandbox).length === 0, until);
  await relay.remove(sandbox);
  await rm(join(layout.exits, sandbox), { force: true });
  await removeTree(removing);
  await verify({ layout, cgroups, relay }, sandbox, [first, supervisor]);
}

function killUnrecorded({ cgroups, layout }: Omit<Removal, "relay">, sandbox: string): Promise<void> {
  const mark = `${layout.mark}/${sandbox}`;
  const find = async () => [...cgroups.processes(sandbox), ...(await findMarked(mark)).pids];
  return killAll(`processes of sandbox ${sandbox}`, find, GONE_DEADLINE_MS);
}

async function verify(
  { layout, cgroups }: Removal,
  sandbox: string,
  ids: (Identity | undefined)[],
): Promise<void> {
  const left: string[] = [];
  for (const id of ids) if (isAlive(id)) left.push(`process ${id.pid}`);
  for (const group of cgroups.remove(sandbox)) left.push(`cgroup ${group}`);
  const folder = layout.folder(sandbox) + REMOVING;
  if ((await stat(folder).catch(() => undefined)) !== undefined) left.push(`folder ${folder}`);
  if (left.length === 0) return;
  const { pids } = await findMarked(`${layout.mark}/${sandbox}`);
  if (pids.length > 0) left.push(`processes ${pids.join(", ")}`);
  throw new ProviderError(`sandbox ${sandbox} could not be removed; left are: ${left.join("; ")}`, {
    sandbox,
    reason: "left_behind",
  });
}

/** Looks at once, then more and more seldom (1 to 25 ms): the end of a namespace takes the kernel a few ms, and has
 * no event that reaches a process which is not the parent. */
async function waitFor(holds: () => boolean, until: number, late?: () => void): Promise<void> {
  const begun = Date.now();
  for (let pause = 1; !holds() && Date.now() < until; pause = Math.min(25, pause * 2)) {
    await Bun.sleep(pause);
    if (Date.now() - begun > 1000) late?.();
  }
}

/** rm(1), since names in a sandbox need not be UTF-8. What it cannot remove at first had its rights taken. Never throws. */
export async function removeTree(path: string): Promise<void> {
  const run = (...argv: string[]) =>
    Bun.spawn(argv, { stdin: "ignore", stdout: "ignore", stderr: "ignore" }).exited.catch(() => 127);
  const rmTree = () => run("rm", "-rf", "--one-file-system", "--", path);
  if ((await rmTree()) === 0) return;
  await run("chmod", "-R", "u+rwX", "--", path);
  if ((await rmTree()) === 0) return;
  await run("chattr", "-R", "-f", "-i", "-a", "--", path);
  await rmTree();
}
