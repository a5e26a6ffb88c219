// `sandmesh bench`: what stands behind a benchmark's name is known before anything is started.
import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import { usedBetween } from "../../test/bench/usage.ts";

const ROOT = join(import.meta.dir, "..", "..");

function ran(...words: string[]): { code: number; stdout: string; stderr: string } {
  const { exitCode, stdout, stderr } = Bun.spawnSync([process.execPath, ...words], {
    cwd: ROOT,
    timeout: 60_000,
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

/** Each as short as it can be, and the fields that its users compare. */
const SHORT = {
  "boot --n 1": "boot_p50_ms exec_to_granted_p50_ms acquire_to_first_command_p50_ms",
  "exec --n 20": `n floor_p50_ms argv_p50_ms argv_p99_ms argv_ratio ping_p50_ms shell_floor_p50_ms shell_p50_ms shell_ratio
    session_p50_ms c32_per_s c32_floor_per_s`,
  "stream --mb 4 --rounds 1": "stream_mb_per_s stream_ratio private_dirty_peak_mb",
  "files --mib 1 --rounds 1": "upload_mb_per_s download_mb_per_s upload_ratio download_ratio",
  "agent --n 1 --idle-s 1":
    "boot_p50_ms private_dirty_mb private_dirty_after_1000_mb wakeups_per_s size_over_runtime_mb",
  "acquire --n 50 --clients 2": "n half_s all_s per_s lost double left pool_cpu_s pool_rss_mb",
};
test.each(Object.entries(SHORT))(
  "bench %s prints one line of JSON, with a number for each of its fields",
  (words, fields) => {
    const { code, stdout, stderr } = bench(...words.split(" "), "--json");
    expect([code, stdout.split("\n").length]).toEqual([0, 2]);
    expect(stderr).toContain("\n");
    const said = JSON.parse(stdout);
    for (const field of fields.split(/\s+/))
      expect([field, said[field]]).toEqual([field, expect.any(Number)]);
  },
  60_000,
);

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
