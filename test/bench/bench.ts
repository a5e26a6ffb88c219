// What the benchmarks share: a mesh of their own, percentiles, one line of JSON.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describeLeft, type Left, nothingLeft } from "../../deploy/local/left.ts";
import { withMesh } from "../../deploy/local/own.ts";
import type { UpOptions } from "../../deploy/local/supervisor.ts";
import { failedBy } from "../../sdk/cli/context.ts";
import { tellByWrites, write } from "../../sdk/cli/output.ts";
import { connect, type Mesh } from "../../sdk/typescript/mod.ts";

export const progress = (line: string): void => {
  process.stderr.write(`${line}\n`);
};

export { benchFlags } from "../../deploy/commands/bench.ts";
export { percentile } from "../../deploy/percentile.ts";

/** Prints what `measure` answers as one line. What it throws is told, and ends this process, as a command's of the
 * program; no stack. */
export async function report(measure: () => Promise<object>): Promise<void> {
  tellByWrites();
  try {
    await write("stdout", `${JSON.stringify(await measure())}\n`);
  } catch (thrown) {
    process.exitCode = failedBy(thrown, process.argv.includes("--json"));
  }
}

export const round = (value: number, digits = 3): number => Number(value.toFixed(digits));

export interface BenchMesh {
  mesh: Mesh;
  home: string;
  url: string;
  credentials: string;
}

/** Starts a mesh of its own, runs `measure`, ends the mesh, and prints what `measure` returned as one line. Exits with
 * 1 where anything was left behind, and as `report` does. */
export function bench(options: UpOptions, measure: (mesh: BenchMesh) => Promise<object>): Promise<void> {
  return report(() => onOwnMesh(options, measure));
}

async function onOwnMesh(given: UpOptions, measure: (mesh: BenchMesh) => Promise<object>): Promise<object> {
  const options = { ...given, temporary: true };
  const home = await mkdtemp(join(tmpdir(), "sandmesh-bench-"));
  const remove = (): Promise<void> => rm(home, { recursive: true, force: true });
  const down = async (left: Left): Promise<void> => {
    progress(describeLeft(left));
    if (!nothingLeft(left)) process.exitCode = 1;
    await remove();
  };
  return await withMesh({ home, options, down }, async (address) => {
    await using mesh = await connect({ url: address.url, credentials: address.credentials });
    return await measure({ mesh, home, ...address });
  }).finally(remove);
}

/** The number behind `flag`, such as `--n 100`. */
export function numberFlag(flag: string, byDefault: number): number {
  const at = process.argv.indexOf(flag);
  const value = at < 0 ? byDefault : Number(process.argv[at + 1]);
  if (!Number.isInteger(value) || value < 1) throw new Error(`${flag} takes a whole number`);
  return value;
}
