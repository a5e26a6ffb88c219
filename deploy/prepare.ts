// The second half of deploy/setup, in TypeScript: a nats-server (and for tests the nats CLI), and the daemon.
import { join } from "node:path";
import { toSandmeshError } from "../broker/contract/index.ts";
import { findNatsCli, findServerBinary } from "../broker/server/index.ts";

const ROOT = join(import.meta.dir, "..");
const say = (line: string) => process.stderr.write(`  ${line}\n`);

async function buildDaemon(): Promise<void> {
  const build = Bun.spawn([process.execPath, join(ROOT, "agent", "build.ts")], {
    cwd: ROOT,
    stdio: ["ignore", "inherit", "inherit"],
  });
  if ((await build.exited) !== 0) throw new Error("the daemon could not be built; see above");
}

try {
  await findServerBinary({ log: say });
  if (process.argv.includes("--tests")) await findNatsCli({ log: say });
  await buildDaemon();
} catch (error) {
  process.stderr.write(`setup: ${toSandmeshError(error).message}\n`);
  process.exit(1);
}
