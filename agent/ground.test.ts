// What a running daemon stands on, changed under it: its folder removed or unmounted, the wall clock stepped.
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { copyFileSync, cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { testServer } from "../broker/server/testing.ts";
import { buildDaemon } from "./build.ts";
import { daemonInRoot, type TestDaemon, type TestMesh, testMesh } from "./testing.ts";

setDefaultTimeout(60_000);
const text = (data: Uint8Array | undefined): string => Buffer.from(data ?? []).toString();

let folder: string;
let scratch: string;
let mesh: TestMesh;
beforeAll(async () => {
  folder = buildDaemon();
  scratch = mkdtempSync(join(tmpdir(), "ground-test-"));
  mesh = await testMesh(await testServer());
});
afterAll(async () => {
  await mesh[Symbol.asyncDispose]();
  rmSync(scratch, { recursive: true, force: true });
});

/** All that is loaded only when it is first asked for, each for the first time, and an orderly end. */
async function worksAndEnds(daemon: TestDaemon): Promise<void> {
  expect(text((await daemon.exec({ shell: "echo on" })).stdout)).toBe("on\n");
  expect(await daemon.request("session_open", { session: "s" })).toMatchObject({ busy: false });
  expect(text((await daemon.exec({ session: "s", shell: "A=kept; echo $A" })).stdout)).toBe("kept\n");
  expect(await daemon.request("write", { path: "/dev/null", data: Buffer.from("x") })).toMatchObject({
    done: true,
  });
  expect(await daemon.request("hash", { path: "/bin/busybox" })).toMatchObject({
    sha256: expect.any(String),
  });
  expect(await daemon.request("info", {})).toMatchObject({ sessions: 1 });
  const tty = { argv: ["busybox", "tty"], pty: { rows: 5, cols: 50 } };
  expect(text((await daemon.exec(tty)).stdout)).toContain("/dev/");
  expect((await daemon.exec({ port: { type: "connect", host: "127.0.0.1", port: 1 } })).outcome.type).toBe(
    "not_started",
  );
  daemon.control("release", { version: 1, generation: 1, reason: "done" });
  expect(await daemon.exited).toBe(0);
}

describe("the daemon's own folder", () => {
  test("removed: everything works on, also what is used for the first time", async () => {
    const own = join(scratch, "daemon");
    cpSync(folder, own, { recursive: true });
    const daemon = await mesh.start({ argv: [join(own, "sandmesh-agent"), "--log-level", "debug"] });
    rmSync(own, { recursive: true });
    await worksAndEnds(daemon);
    expect(await daemon.stderr).toContain('"ready"');
  });

  // Mounts and chroot need root.
  test.if(process.getuid?.() === 0)("unmounted by a command: the same", async () => {
    const root = join(scratch, "root");
    for (const sub of ["proc", "dev/pts", "sandmesh", "bin", "lib"])
      mkdirSync(join(root, sub), { recursive: true });
    for (const name of ["busybox", "sh"]) copyFileSync("/bin/busybox", join(root, "bin", name));
    const terminals = `mount -t devpts -o newinstance,ptmxmode=666 devpts "$R/dev/pts"; ln -sf pts/ptmx "$R/dev/ptmx"`;
    const daemon = await mesh.start({
      argv: daemonInRoot(folder, root, terminals),
      env: { PATH: "/usr/bin:/bin:/usr/sbin:/sbin" },
    });
    const gone = await daemon.exec({ argv: ["busybox", "umount", "-l", "/sandmesh"] });
    expect(gone.outcome).toEqual({ type: "exited", code: 0 });
    expect(text((await daemon.exec({ argv: ["busybox", "ls", "/sandmesh"] })).stdout)).toBe("");
    await worksAndEnds(daemon);
  });
});

const DAY_S = 86_400;

test("the wall clock stepped a year on and back: limits, commands and the dead man's time go by another clock", async () => {
  const library = join(scratch, "clock.so");
  const offset = join(scratch, "offset");
  const step = (seconds: number): void =>
    writeFileSync(offset, BigInt64Array.of(BigInt(seconds)), { flag: "r+" });
  writeFileSync(offset, Buffer.alloc(8));
  const made = Bun.spawnSync([
    "cc",
    "-shared",
    "-fPIC",
    "-o",
    library,
    join(import.meta.dir, "clock.fixture.c"),
  ]);
  expect([made.exitCode, made.stderr.toString()]).toEqual([0, ""]);
  step(365 * DAY_S);
  // Without the launcher, which would hide LD_PRELOAD from it.
  const daemon = await mesh.start({
    argv: [process.execPath, join(import.meta.dir, "main.ts"), "--log-level", "info"],
    env: { LD_PRELOAD: library, CLOCK_OFFSET: offset },
    deadManMs: 30_000,
  });
  const began = performance.now();
  const limited = daemon.exec({ argv: ["sleep", "60"], timeout_ms: 1_500, grace_ms: 0 });
  const whole = daemon.exec({ shell: "read -r x < /dev/null; sleep 1; echo whole", timeout_ms: 10_000 });
  const year = async (): Promise<number> =>
    Number(text((await daemon.exec({ argv: ["date", "+%Y"] })).stdout));
  const ahead = await year();
  step(-365 * DAY_S);
  expect(ahead - (await year())).toBe(2);
  expect(text((await whole).stdout)).toBe("whole\n");
  expect((await limited).outcome).toMatchObject({ type: "timed_out", after_ms: 1_500 });
  expect(performance.now() - began).toBeGreaterThan(1_490);
  step(365 * DAY_S);
  expect((await daemon.exec({ argv: ["true"] })).outcome).toEqual({ type: "exited", code: 0 });
  const commands = await daemon.request("commands", {});
  for (const { age_ms } of commands.commands as { age_ms: number }[]) expect(age_ms).toBeLessThan(60_000);
  process.kill(daemon.pid, "SIGTERM");
  expect(await daemon.exited).toBe(0);
  // It did go by the wrong one for what people read.
  expect(await daemon.stderr).toContain(`"time":"${ahead}-`);
});
