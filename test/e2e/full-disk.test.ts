// A mesh whose disk is full, or read-only: it says so, at once, and goes on when that is over. As root, since the disks are made here.
import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { appendFileSync } from "node:fs";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { decode, encode, errnoOf, poolSubject } from "../../broker/contract/index.ts";
import { parseCreds } from "../../broker/credentials/index.ts";
import { connect } from "../../broker/link/connect.ts";
import { until } from "../../broker/server/testing.ts";
import { down, up } from "../../deploy/local/up.ts";
import { PROGRAM, type Ran, run } from "./program.ts";

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
  run([...PROGRAM, ...args], { env: { SANDMESH_HOME: home } });

function fill(): string {
  const file = join(home, "fill");
  for (const size of [1 << 20, 4096, 1]) {
    try {
      for (;;) appendFileSync(file, Buffer.alloc(size));
    } catch (error) {
      if (errnoOf(error) !== "ENOSPC") throw error;
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

  test("that takes no records is told at once, also to who waits already; with room it goes on by itself", async () => {
    await mount("-t", "tmpfs", "-o", "size=24m", "tmpfs", home);
    const { url, credentials } = await up(home);
    expect((await sandmesh("acquire", "host", "--run", "r1")).code).toBe(0);
    const file = fill();
    const link = await connect({ urls: [url], credentials: parseCreds(await readFile(credentials, "utf8")) });
    try {
      const renew = async (i: number) => {
        const body = encode({ run: "r1", lease_ms: 600_000 + i });
        const { data } = await link.request("pool", poolSubject("default", "renew"), body, {
          timeoutMs: 4_000,
        });
        return decode(data);
      };
      // What has been given to the records' file already still takes some.
      let refused: object = {};
      for (let i = 0; !("error" in refused) && i < 1_000; i++) refused = await renew(i);
      const full = { code: "pool_unavailable", reason: "records" };
      expect(refused).toMatchObject({ error: full });
      expect(await renew(1)).toMatchObject({ error: full });
      await rm(file);
      await until(
        "a renewal",
        async () => !("error" in (await renew(2).catch((error) => ({ error })))),
        30_000,
        200,
      );
      expect((await sandmesh("run", "host", "--", "echo", "works")).stdout).toBe("works\n");
    } finally {
      await link.close();
    }
    expect((await sandmesh("down")).stdout).toBe(
      "left behind: 0 sandboxes, 0 processes, 0 mounts, 0 leases\n",
    );
  });

  test("that has no room for a mesh is named by up, whose log has no room either", async () => {
    await mount("-t", "tmpfs", "-o", "size=40k", "tmpfs", home);
    const refused = JSON.parse((await sandmesh("--json", "up")).stdout);
    expect(refused).toMatchObject({ error: { code: "file_error", reason: "ENOSPC" } });
    expect(refused.error.message).toContain(`the disk of ${home} is full`);
  });

  test("that is read-only is a line of doctor's table, and a typed error of up and down", async () => {
    await mount("-t", "tmpfs", "-o", "size=24m", "tmpfs", home);
    expect((await sandmesh("up")).code).toBe(0);
    process.kill(JSON.parse(await readFile(join(home, "supervisor.json"), "utf8")).pid, "SIGKILL");
    await until("a disk that nobody writes to", async () => {
      const { code } = await run(["mount", "-o", "remount,ro", home]);
      return code === 0;
    });
    const ended = JSON.parse((await sandmesh("--json", "down")).stdout);
    expect(ended).toMatchObject({ error: { reason: "EROFS" } });
    expect(ended.error.code).not.toBe("internal");
    const findings: { check: string; ok: boolean; detail: string }[] = JSON.parse(
      (await sandmesh("--json", "doctor")).stdout,
    );
    expect(findings.find(({ check }) => check === "overlayfs")).toMatchObject({
      ok: false,
      detail: expect.stringContaining("EROFS"),
    });
    expect(findings.length).toBeGreaterThan(8);
    const again = JSON.parse((await sandmesh("--json", "up")).stdout);
    expect(again).toMatchObject({ error: { code: "file_error", reason: "EROFS" } });
  });
});

test("doctor makes no home where there was none", async () => {
  await sandmesh("doctor");
  expect(await readdir(home)).toEqual([]);
});
