// `bun test/chaos/blocked-trainer.ts [lease, s] [blocked, s]`: a trainer whose event loop stands still for 120 s with a
// lease of 30 s loses nothing, in Bun and in Node. One JSON line on stdout; exit code 1 where something was lost.
import { Program, type Runtime } from "../../sdk/typescript/testing/harness.ts";
import { liveMesh } from "../integration/sdk-typescript/mesh.ts";

const [leaseS = 30, blockedS = 120] = process.argv.slice(2).map(Number);
const env = { LEASE: `${leaseS}s`, BLOCK_MS: String(blockedS * 1000) };

async function blocked(runtime: Runtime): Promise<{ lost: boolean; left: number }> {
  await using live = await liveMesh();
  await using program = await Program.start(runtime, live.server, "blocked", env);
  const { states, lost } = await program.step("blocked");
  await program.step("closed");
  const kept = lost === undefined && JSON.stringify(states) === '["leased"]';
  return { lost: !kept, left: live.provider.made.size };
}

const [bun, node] = await Promise.all([blocked("bun"), blocked("node")]);
console.log(JSON.stringify({ lease_s: leaseS, blocked_s: blockedS, bun, node }));
if (bun.lost || node.lost || bun.left + node.left > 0) process.exitCode = 1;
