// The arm64 build, made on another machine, and run there as far as qemu's user mode goes: the program starts. It cannot
// become a sandbox's daemon under it, which knows neither PR_SET_CHILD_SUBREAPER nor a clone that shares memory.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buildDaemon } from "./build.ts";
import { EXIT } from "./main.ts";
import { DAEMON_VERSION } from "./process/version.ts";

const QEMU = "qemu-aarch64-static";
const missing = ["aarch64-linux-gnu-gcc", QEMU].filter((program) => Bun.which(program) === null);

if (process.arch !== "x64") test.skip("this machine is not the other one", () => {});
else if (missing.length > 0 && process.env.CI !== "true")
  test.skip(`without ${missing.join(" and ")} on this machine`, () => {});
else
  describe("the daemon for arm64", () => {
    let scratch: string;
    let folder: string;
    beforeAll(() => {
      scratch = mkdtempSync(join(tmpdir(), "arm64-test-"));
      folder = buildDaemon({ arch: "arm64", out: join(scratch, "daemon") });
    }, 300_000);
    afterAll(() => rmSync(scratch, { recursive: true, force: true }));

    test("every part of it is for arm64, and what starts it needs no library", async () => {
      const machineOf = async (name: string): Promise<number> =>
        new DataView(await Bun.file(join(folder, name)).slice(0, 64).arrayBuffer()).getUint16(18, true);
      const parts = [
        "sandmesh-agent",
        "sandmesh-daemon",
        "sandmesh-engine.so",
        "lib/ld-linux-aarch64.so.1",
        "lib/libc.so.6",
      ];
      // EM_AARCH64
      for (const part of parts) expect([part, await machineOf(part)]).toEqual([part, 183]);
      const started = Bun.spawnSync([QEMU, join(folder, "sandmesh-agent"), "--version"], { stderr: "pipe" });
      // So far and no further: the machine's kernel does not run the loader that it executes.
      expect([started.exitCode, started.stderr.toString()]).toEqual([
        EXIT.cannotRun,
        `sandmesh-agent: cannot start ${folder}/lib/ld-linux-aarch64.so.1: Exec format error\n`,
      ]);
    }, 60_000);

    test("its program runs with the loader and libc that lie beside it", () => {
      const loader = [join(folder, "lib/ld-linux-aarch64.so.1"), "--library-path", join(folder, "lib")];
      const said = Bun.spawnSync([QEMU, ...loader, join(folder, "sandmesh-daemon"), "--version"], {
        stderr: "pipe",
      });
      expect([said.exitCode, said.stdout.toString(), said.stderr.toString()]).toEqual([
        0,
        `${DAEMON_VERSION}\n`,
        "",
      ]);
    }, 60_000);
  });
