// `bun test/chaos/long.ts [lease, s] [blocked, s]`: the long versions, with real sandboxes (30 s and 120 s by default,
// about five minutes). One JSON line on stdout; exit code 1 where something was lost or left.
//
//   blocked  a trainer in Bun, Node and Python whose event loop stands still for four times its lease loses nothing
//   killed   a trainer that is killed under that lease, with commands running, leaves nothing within lease + 10 s
//   away     a pool, then a nats-server, that stand still for half a lease cost nobody anything
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { join } from "node:path";
import { build } from "../../sdk/typescript/build.ts";
import { localMesh } from "../e2e/program.ts";
import { Client, pythonEnvironment } from "./client-process.ts";
import { ChaosMesh, SLACK_MS } from "./mesh.ts";

const [leaseS = 30, blockedS = 120] = process.argv.slice(2).map(Number);
const leaseMs = leaseS * 1000;

const ROOT = join(import.meta.dir, "..", "..");
const CHILD = join(ROOT, "sdk", "typescript", "testing", "child.mjs");
const SDK = join(ROOT, "sdk", "typescript", "mod.ts");

/** Prints "kept" where the command that it looks for still runs after the time in which nothing was awaited. */
const PYTHON = `
import asyncio, sys, time
import sandmesh
async def main():
    async with sandmesh.connect(lease=${leaseS}) as mesh:
        async with await mesh.acquire(image="host") as box:
            await box.exec("echo kept > /tmp/f")
            time.sleep(${blockedS})
            print((await box.exec(["cat", "/tmp/f"])).stdout.text, end="")
asyncio.run(main())
`;

async function output(argv: string[], env: Record<string, string>): Promise<string> {
  const [program = "", ...args] = argv;
  const child = spawn(program, args, {
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", "inherit"],
  });
  let text = "";
  child.stdout.on("data", (data: Buffer) => {
    text += data.toString();
  });
  await once(child, "close");
  return text;
}

/** Whether each runtime kept its sandbox. */
async function blocked(mesh: ChaosMesh): Promise<Record<string, boolean>> {
  const built = await mkdtemp(join(ROOT, "dist", "long-"));
  try {
    await build(built);
    const env = { SANDMESH_HOME: mesh.home, LEASE: `${leaseS}s`, BLOCK_MS: String(blockedS * 1000) };
    const python = pythonEnvironment();
    const [bun, node, py] = await Promise.all([
      output([process.execPath, CHILD, "blocked"], { ...env, SDK }),
      output(["node", CHILD, "blocked"], { ...env, SDK: join(built, "mod.js") }),
      output([python.program, "-c", PYTHON], { SANDMESH_HOME: mesh.home, PYTHONPATH: python.path }),
    ]);
    const kept = (text: string) => /"step":"blocked"/.test(text) && !/"lost"/.test(text);
    return { bun: kept(bun), node: kept(node), python: py === "kept\n" };
  } finally {
    await rm(built, { recursive: true, force: true });
  }
}

/** How long after the kill nothing was left, s. */
async function killed(mesh: ChaosMesh): Promise<number> {
  await using client = new Client("typescript", mesh.home, {
    lease_ms: leaseMs,
    count: 4,
    command: "setsid sleep 1000 & echo up; sleep 1000",
  });
  await client.steps("running", 4);
  await client.kill();
  const begun = performance.now();
  await mesh.nothingLeft(leaseMs + SLACK_MS);
  return Math.round((performance.now() - begun) / 100) / 10;
}

async function away(mesh: ChaosMesh, part: "pool" | "nats"): Promise<boolean> {
  const client = await mesh.connect({ lease: leaseMs });
  await using box = await client.acquire({ image: "host" });
  await box.exec("echo kept > /tmp/f");
  const pid = mesh.pid(part);
  mesh.freeze(pid);
  await Bun.sleep(leaseMs / 2);
  mesh.thaw(pid);
  return (await box.exec("cat /tmp/f")).stdout.text === "kept\n";
}

// With the pool's own defaults.
await using mesh = new ChaosMesh(await localMesh());
const kept = await blocked(mesh);
const goneAfterS = await killed(mesh);
const pool = await away(mesh, "pool");
const nats = await away(mesh, "nats");
await mesh.nothingLeft();
const fine = [...Object.values(kept), pool, nats].every(Boolean);
console.log(
  JSON.stringify({
    lease_s: leaseS,
    blocked_s: blockedS,
    kept,
    gone_after_s: goneAfterS,
    away: { pool, nats },
  }),
);
if (!fine) process.exitCode = 1;
