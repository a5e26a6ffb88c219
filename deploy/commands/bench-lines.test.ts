// What each benchmark prints: one line for programs, whatever its figures are.
import { expect, test } from "bun:test";
import { join } from "node:path";

const PROGRAM = join(import.meta.dir, "..", "sandmesh.ts");

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
    const argv = [PROGRAM, "bench", ...words.split(" "), "--json"];
    const { exitCode, stdout, stderr } = Bun.spawnSync([process.execPath, ...argv], { timeout: 50_000 });
    const line = stdout.toString();
    expect([exitCode, line.split("\n").length]).toEqual([0, 2]);
    expect(stderr.toString()).toContain("\n");
    const said = JSON.parse(line);
    for (const field of fields.split(/\s+/))
      expect([field, said[field]]).toEqual([field, expect.any(Number)]);
  },
  60_000,
);
