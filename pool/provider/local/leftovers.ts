// What of a mesh is still there, counted from the kernel and the disk, not from anyone's records.
import { Cgroups } from "./cgroups.ts";
import { Layout, namesIn } from "./layout.ts";
import { findMarked, isRelay, LAUNCHER_NAME, nameOf } from "./processes.ts";

export interface Leftovers {
  sandboxes: number;
  /** Of sandboxes, with their supervisors. */
  processes: number;
  mounts: number;
  cgroups: number;
  /** Entries of sandboxes on disk. Unpacked layers are a cache, and stay. */
  files: number;
  /** The mesh's own launcher and relay, which are there as long as the mesh is. */
  services: number;
}

export async function leftovers(stateDir: string): Promise<Leftovers> {
  const layout = new Layout(stateDir);
  const [sandboxes, exits, relay, marked, groups] = await Promise.all([
    namesIn(layout.sandboxes),
    namesIn(layout.exits),
    namesIn(layout.relay),
    findMarked(layout.mark, layout.stateDir),
    new Cgroups(layout.mark).names(),
  ]);
  const services = marked.pids.filter(isService).length;
  const files = sandboxes.length + exits.length + relay.filter((name) => !name.includes(".")).length;
  const processes = marked.pids.length - services;
  return {
    sandboxes: sandboxes.length,
    processes,
    mounts: marked.mounts,
    cgroups: groups.length,
    files,
    services,
  };
}

/** Removes the cgroups in which nothing runs any more; whether there were any. */
export const removeEmptyGroups = (stateDir: string): boolean =>
  new Cgroups(new Layout(stateDir).mark).close();

const isService = (pid: number): boolean => isRelay(pid) || nameOf(pid) === LAUNCHER_NAME;
