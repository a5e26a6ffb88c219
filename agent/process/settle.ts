// What the daemon does to its own process before it works: hides, names and limits it, and takes in orphans.
import type { Engine } from "../native/engine.ts";
import { type Environment, ownEnvironment } from "./environment.ts";

/** The launcher's word of the soft limit of open files that it found. */
const NOFILE = "SANDMESH_NOFILE";

/** To be called before the first secret is read. Answers the environment that the process was started with.
 * Orphans of commands fall to the daemon also where it is not PID 1, so that they are found, and reaped. */
export function settleProcess(engine: Engine): Environment {
  // Read before hiding: then /proc/self/environ is root's, and closed to the daemon itself.
  const own = ownEnvironment();
  engine.hide("sandmesh-agent");
  const files = Number(own.get(NOFILE));
  if (Number.isSafeInteger(files) && files > 0) engine.setSoftFiles(Math.min(files, 0x7fff_ffff));
  engine.reapOrphans();
  return own;
}
