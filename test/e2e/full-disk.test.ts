// A mesh whose disk is full, or read-only: it says so, at once, and goes on when that is over. As root, since the disks are made here.
import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { appendFileSync } from "node:fs";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "../../broker/server/testing.ts";
import { down } from "../../deploy/local/up.ts";
import { type Ran, ROOT, run } from "./program.ts";

let home: string;
beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), "sandmesh-full-"));
});
afterEach(async () => {
  await mount("-o", "remount,rw", home).catch(() => undefined);
  await down(home).catch(() => undefined);
  await run(["umount", "-l", home]);
  await rm(home, { recursive: true, force: true });
});

async function mount(...args: string[]): Promise<void> {
  const { code, stderr } = await run(["mount", ...args]);
  if (code !== 0) throw new Error(stderr);
}

const sandmesh = (...args: string[]): Promise<Ran> =>
  run([process.execPath, join(ROOT, "deploy", "sandmesh.ts"), ...args], { env: { SANDMESH_HOME: home } });

function fill(): string {
  const file = join(home, "fill");
  for (const size of [1 << 20, 4096, 1]) {
    try {
      for (;;) appendFileSync(file, Buffer.alloc(size));
    } catch (error) {
      if (!(error instanceof Error && "code" in error && error.code === "ENOSPC")) throw error;
    }
  }
  return file;
}

describe.if(process.getuid?.() === 0)("a mesh's disk", () => {
  test("that is full refuses a sandbox as the provider's failure, not as a fault of sandmesh's own; one with room has it", async () => {
    await mount("-t", "tmpfs", "-o", "size=24m", "tmpfs", home);
    expect((await sandmesh("up")).code).toBe(0);
    const file = fill();
    const refused = JSON.parse((await sandmesh("--json", "acquire", "host")).stdout);
    expect(refused).toMatchObject({ error: { code: "provider_failed", reason: "ENOSPC" } });
    await rm(file);
    expect((await sandmesh("acquire", "host")).code).toBe(0);
  });

  test("that is read-only is a line of doctor's table, and a typed error of up and down", async () => {
    await mount("-t", "tmpfs", "-o", "size=24m", "tmpfs", home);
    expect((await sandmesh("up")).code).toBe(0);
    process.kill(JSON.parse(await readFile(join(home, "supervisor.json"), "utf8")).pid, "SIGKILL");
    await until("a disk that nobody writes to", async () => {
      const { code } = await run(["mount", "-o", "remount,ro", home]);
      return code === 0;
    });
    const down = JSON.parse((await sandmesh("--json", "down")).stdout);
    expect(down).toMatchObject({ error: { reason: "EROFS" } });
    expect(down.error.code).not.toBe("internal");
    const findings: { check: string; ok: boolean; detail: string }[] = JSON.parse(
      (await sandmesh("--json", "doctor")).stdout,
    );
    expect(findings.find(({ check }) => check === "overlayfs")).toMatchObject({
      ok: false,
      detail: expect.stringContaining("EROFS"),
    });
    expect(findings.length).toBeGreaterThan(8);
    const up = JSON.parse((await sandmesh("--json", "up")).stdout);
    expect(up).toMatchObject({ error: { code: "file_error", reason: "EROFS" } });
  });
});

test("doctor makes no home where there was none", async () => {
  await sandmesh("doctor");
  expect(await readdir(home)).toEqual([]);
});
