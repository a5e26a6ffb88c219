// The mesh's own processes of a home, by their arguments: whatever files of the home are left.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { killAll } from "../../pool/provider/local/processes.ts";
import { type HomePaths, nameProcess, type ProcessName } from "./home.ts";

/** The supervisor first: it would start the others again. */
type Service = "supervisor" | "pool" | "nats-server";

/** What a new supervisor leaves the old one to see that the home is another's: it looks each second. */
const LEAVE_MS = 3_000;
const END_MS = 10_000;

function serviceOf(argv: readonly string[], paths: HomePaths): Service | undefined {
  if (argv.includes(paths.poolConfig) && argv.some((arg) => arg.endsWith("/pool/main.ts"))) return "pool";
  // The shell that watches over nats-server ends with it.
  if (argv.includes(join(paths.nats, "nats-server.conf")) && !argv[0]?.endsWith("/sh")) return "nats-server";
  if (argv.includes(paths.home) && argv.some((arg) => arg.endsWith("/deploy/local/supervisor.ts")))
    return "supervisor";
  return undefined;
}

/** Pids, this process's own not among them. */
function find(paths: HomePaths, ...which: Service[]): number[] {
  return readdirSync("/proc").flatMap((name) => {
    const pid = Number(name);
    if (!Number.isInteger(pid) || pid === process.pid) return [];
    try {
      const service = serviceOf(readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0"), paths);
      return service !== undefined && which.includes(service) ? [pid] : [];
    } catch {
      return []; // ended while we looked
    }
  });
}

/** How many run. */
export const countServices = (paths: HomePaths): number =>
  find(paths, "supervisor", "pool", "nats-server").length;

/** A supervisor that runs without a file that names it. */
export function unnamedSupervisor(paths: HomePaths): ProcessName | undefined {
  const [pid] = find(paths, "supervisor");
  return pid === undefined ? undefined : nameProcess(pid);
}

/** For the supervisor that has just claimed the home: waits until one of before has gone with its children, and kills
 * what does not go. Others that only failed to claim it have no children, and are left alone. Throws ProviderError. */
export async function endServices(paths: HomePaths): Promise<void> {
  const until = Date.now() + LEAVE_MS;
  const children = () => find(paths, "pool", "nats-server");
  while (children().length > 0 && Date.now() < until) await Bun.sleep(20);
  if (children().length === 0) return;
  await killAll("the mesh's processes", () => find(paths, "supervisor", "pool", "nats-server"), END_MS);
}
