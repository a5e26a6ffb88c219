// `sandmesh bench`: what stands behind a benchmark's name is known before anything is started.
import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import { usedBetween } from "../../test/bench/usage.ts";

const ROOT = join(import.meta.dir, "..", "..");

function ran(...words: string[]): { code: number; stdout: string; stderr: string } {
  const { exitCode, stdout, stderr } = Bun.spawnSync([process.execPath, ...words], {
    cwd: ROOT,
    timeout: 30_000,
  });
  return { code: exitCode, stdout: stdout.toString(), stderr: stderr.toString() };
}
const bench = (...words: string[]) => ran(join(ROOT, "deploy", "sandmesh.ts"), "bench", ...words);

describe("bench", () => {
  test.each([
    [["exec", "--nosuch", "1"], "--nosuch", "bench exec"],
    [["exec", "--n", "x"], "--n", "bench exec"],
    [["exec", "--n", "0"], "--n", "bench exec"],
    [["exec", "--n"], "--n", "bench exec"],
    [["exec", "extra"], "", "bench exec"],
    [["boot", "--rounds", "2"], "--rounds", "bench boot"],
    [["nosuch"], "nosuch", "bench"],
  ])("%j is refused before anything starts, and the word is named", (words, named, help) => {
    const { code, stdout, stderr } = bench(...words);
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr).toStartWith("sandmesh: invalid_request: ");
    expect(stderr).toContain(named);
    expect(stderr).toEndWith(`(see sandmesh help ${help})\n`);
  });

  test("a script that is run by itself refuses the same", () => {
    const { code, stdout } = ran(join(ROOT, "test", "bench", "exec.ts"), "--nosuch", "1");
    expect([code, stdout]).toEqual([2, ""]);
  });

  test("help names each benchmark's flags, with what they are without", () => {
    const { code, stdout } = bench("--help");
    expect(code).toBe(0);
    for (const each of [
      "bench exec [--n 2000] [--image <image>]",
      "bench boot [--n 30]",
      "[--lease-ms 60000] [--kill]",
    ])
      expect(stdout.replaceAll(/\n */g, " ")).toContain(each);
  });
});

test("a thread that ended between two looks does not make what the others used negative", () => {
  const before = new Map([
    ["1", 100],
    ["2", 500],
  ]);
  expect(
    usedBetween(
      before,
      new Map([
        ["1", 130],
        ["3", 7],
      ]),
    ),
  ).toBe(37);
});
