// deploy/quickstart, as a newcomer runs it.
import { describe, expect, test } from "bun:test";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { run } from "./program.ts";

describe("quickstart", () => {
  test("replays recorded trajectories in a burst of sandboxes, and leaves nothing", async () => {
    const home = await mkdtemp(join(tmpdir(), "sandmesh-quickstart-"));
    try {
      const ran = await run(["bash", "deploy/quickstart", "16"], { env: { SANDMESH_HOME: home } });
      expect({ code: ran.code, stderr: ran.code === 0 ? "" : ran.stderr }).toEqual({ code: 0, stderr: "" });
      expect(ran.stdout).toContain("left behind: 0 sandboxes, 0 processes, 0 mounts, 0 leases");
      expect(ran.stdout.match(/^sb-\w+ .*\d+\/\d+$/gm)?.length).toBe(16);
      expect(ran.stdout.split("\n").filter((line) => line.length > 80)).toEqual([]);
      expect(ran.stderr).not.toMatch(/\b(0|1) sandboxes/);
      const [, sameExit, exits, sameOutput, outputs] =
        /^all .*?(\d+)\/(\d+)\s+(\d+)\/(\d+)$/m.exec(ran.stdout) ?? [];
      // What came out the same again on a plain Debian 12 does so here, all of it.
      expect(Number(exits)).toBeGreaterThan(50);
      expect([sameExit, sameOutput]).toEqual([exits, outputs]);
      // Of the others nearly every exit comes again; outputs hold times, sizes and other versions' words.
      const [, otherExits, others] =
        /^The others .*\n {2}exit codes agree (\d+)\/(\d+),/m.exec(ran.stdout) ?? [];
      expect(Number(others)).toBeGreaterThan(40);
      expect(Number(otherExits) / Number(others)).toBeGreaterThan(0.9);
    } finally {
      await rm(home, { recursive: true, force: true });
    }
  });

  test.each(["many", "-5", "0", ""])(
    "%j is no number of sandboxes: refused before anything is set up",
    async (count) => {
      const ran = await run(["bash", "deploy/quickstart", count]);
      expect([ran.code, ran.stdout]).toEqual([2, ""]);
      expect(ran.stderr).toMatch(/^usage: [^\n]*\n$/);
    },
  );

  test.each(["quickstart", "setup"])("%s --help tells what it does, and does nothing", async (script) => {
    const ran = await run(["bash", `deploy/${script}`, "--help"]);
    expect([ran.code, ran.stderr]).toEqual([0, ""]);
    expect(ran.stdout).toContain(`bash deploy/${script}`);
  });
});
