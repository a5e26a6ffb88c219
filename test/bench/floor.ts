// The C floor, built once a run and put into a sandbox.
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as v from "valibot";
import type { Sandbox } from "../../sdk/typescript/mod.ts";

const Floor = v.object({ n: v.number(), per_s: v.number(), ms: v.array(v.number()) });
export type Floor = v.InferOutput<typeof Floor>;

const INSIDE = "/tmp/floor";

/** Compiles floor.c, static, so that it runs in any image. */
async function buildFloor(): Promise<Uint8Array> {
  const folder = await mkdtemp(join(tmpdir(), "sandmesh-floor-"));
  try {
    const out = join(folder, "floor");
    const source = join(import.meta.dir, "floor.c");
    const cc = Bun.spawnSync(["cc", "-O2", "-static", "-pthread", "-o", out, source], { stderr: "pipe" });
    if (!cc.success) throw new Error(`floor.c does not compile: ${cc.stderr.toString()}`);
    return await readFile(out);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

export async function installFloor(box: Sandbox): Promise<void> {
  await box.files.write(INSIDE, await buildFloor(), { mode: 0o755 });
}

/** Runs the floor inside the sandbox: `count` commands, `concurrency` at a time, each after a rest. */
export async function runFloor(
  box: Sandbox,
  program: string[],
  { count, concurrency = 1, restMs = 0 }: { count: number; concurrency?: number; restMs?: number },
): Promise<Floor> {
  const counts = [count, concurrency, restMs].map(String);
  const result = await box.exec([INSIDE, ...counts, ...program], { check: true });
  return v.parse(Floor, JSON.parse(result.stdout.text));
}
