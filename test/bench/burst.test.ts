// The burst on the test cluster: what is counted in it, and nothing that depends on how fast a machine is.
import { expect } from "bun:test";
import * as v from "valibot";
import { needing } from "../cluster/needs.ts";

const LIMIT_MS = 600_000;

const Count = v.pipe(v.number(), v.safeInteger(), v.minValue(0));
const Positive = v.pipe(v.number(), v.gtValue(0));
const Result = v.looseObject({
  n: Count,
  clients: Count,
  placement: v.picklist(["scheduler", "direct"]),
  floor_wired_all_s: Positive,
  half_s: Positive,
  all_s: Positive,
  ratio: Positive,
  writes_ours_per_sandbox: Positive,
  writes_all_per_sandbox: Positive,
  lost: Count,
  double: Count,
  left: Count,
});
const WithPlain = v.looseObject({ ...Result.entries, floor_all_s: Positive, ratio_plain: Positive });

/** The last line of `test/bench/burst`, which works on the cluster that is up. */
async function burst(...flags: string[]): Promise<unknown> {
  const argv = ["bash", "test/bench/burst", "--json", ...flags];
  const child = Bun.spawn(argv, { stdio: ["ignore", "pipe", "inherit"] });
  const [said] = await Promise.all([new Response(child.stdout).text(), child.exited]);
  return JSON.parse(said.trimEnd().split("\n").at(-1) ?? "");
}

const inCluster = needing("programs", "kwok");

inCluster(
  "of 500 sandboxes at once for 8 clients none is lost or given twice, each costs two writes at most, and when the last client has left there is none",
  async () => {
    const result = v.parse(WithPlain, await burst("500", "8", "--rounds", "1", "--once", "--end", "exit"));
    expect(result).toMatchObject({ n: 500, clients: 8, placement: "scheduler" });
    expect(result).toMatchObject({ lost: 0, double: 0, left: 0, left_at_exit: 0 });
    expect(result.writes_ours_per_sandbox).toBeLessThanOrEqual(2.1);
  },
  LIMIT_MS,
);

inCluster(
  "the sandboxes of clients that are killed all end, each with two writes at most",
  async () => {
    const flags = ["64", "4", "--rounds", "1", "--once", "--no-plain", "--end", "kill"];
    const result = v.parse(
      v.looseObject({ ...Result.entries, zero_after_kill_s: Positive }),
      await burst(...flags),
    );
    expect(result).toMatchObject({ n: 64, clients: 4, lost: 0, double: 0, left: 0 });
    expect(result.writes_ours_per_sandbox).toBeLessThanOrEqual(2.1);
  },
  LIMIT_MS,
);
