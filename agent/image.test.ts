// The daemon in roots that give it next to nothing to write to: read-only, without /tmp, with a full disk.
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { copyFileSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { testServer } from "../broker/server/testing.ts";
import { buildDaemon } from "./build.ts";
import { daemonInRoot, type TestDaemon, type TestMesh, testMesh } from "./testing.ts";

setDefaultTimeout(60_000);
const text = (data: Uint8Array | undefined): string => Buffer.from(data ?? []).toString();
const PATH = "/usr/bin:/bin:/usr/sbin:/sbin";

// Mounts and chroot need root.
describe.if(process.getuid?.() === 0)("a root that is", () => {
  let folder: string;
  let roots: string;
  let mesh: TestMesh;
  beforeAll(async () => {
    folder = buildDaemon();
    roots = mkdtempSync(join(tmpdir(), "roots-test-"));
    mesh = await testMesh(await testServer());
  });
  afterAll(async () => {
    await mesh[Symbol.asyncDispose]();
    rmSync(roots, { recursive: true, force: true });
  });

  /** Busybox by the names that the tests use; no /etc, no /tmp. */
  function makeRoot(name: string): string {
    const root = join(roots, name);
    for (const sub of ["proc", "dev", "sandmesh", "bin", "data"])
      mkdirSync(join(root, sub), { recursive: true });
    for (const applet of ["busybox", "sh", "cat", "dd", "echo"])
      copyFileSync("/bin/busybox", join(root, "bin", applet));
    return root;
  }
  const start = (name: string, before: string): Promise<TestDaemon> =>
    mesh.start({ argv: daemonInRoot(folder, makeRoot(name), before), env: { PATH } });
  const write = (daemon: TestDaemon, path: string, data: Uint8Array) =>
    daemon.request("write", { path, data });

  test("read-only but for one folder, without /tmp: commands, sessions, files in the folder", async () => {
    const daemon = await start("read-only", 'mount -t tmpfs data "$R/data"; mount -o remount,bind,ro "$R"');
    const end = await daemon.exec({ shell: "echo x > /x; echo $?; echo y > /data/y && cat /data/y" });
    expect(text(end.stdout)).toBe("1\ny\n");
    expect(await daemon.request("session_open", { session: "s" })).toMatchObject({ busy: false });
    const inSession = await daemon.exec({ session: "s", shell: "cat <<E\nfrom a heredoc\nE" });
    expect(inSession.outcome.type).toBe("exited");
    expect((await daemon.exec({ session: "s", shell: "A=kept" })).outcome.type).toBe("exited");
    expect(text((await daemon.exec({ session: "s", shell: "echo $A" })).stdout)).toBe("kept\n");
    expect(await write(daemon, "/x", Buffer.from("x"))).toMatchObject({
      error: { code: "file_error", reason: "EROFS" },
    });
    expect(await write(daemon, "/data/z", Buffer.from("z"))).toMatchObject({ done: true });
    daemon.control("release", { version: 1, generation: 1, reason: "done" });
    expect(await daemon.exited).toBe(0);
  });

  test("full: commands run, output and stdin are whole, a write is ENOSPC and leaves nothing half", async () => {
    const fill = "dd if=/dev/zero of=$R/full bs=64k 2>/dev/null || true; : > $R/empty";
    const before = `mount -t tmpfs -o size=4m full "$R/data"; R="$1/data"; ${fill}; R="$1"`;
    const daemon = await start("full", before);
    const echoed = Buffer.alloc(200_000, "full ");
    const end = await daemon.exec({ argv: ["cat"], stdin: echoed, cwd: "/data" });
    expect(Buffer.compare(Buffer.from(end.stdout ?? []), echoed)).toBe(0);
    expect(await write(daemon, "/data/new", Buffer.alloc(100_000))).toMatchObject({
      error: { code: "file_error", reason: "ENOSPC" },
    });
    expect(text((await daemon.exec({ shell: "cd /data; echo * .[!.]*" })).stdout)).toBe(
      "empty full .[!.]*\n",
    );
    expect(await daemon.request("remove", { path: "/data/full" })).toEqual({ done: true });
    expect(await write(daemon, "/data/new", Buffer.alloc(100_000))).toMatchObject({ done: true });
    daemon.control("release", { version: 1, generation: 1, reason: "done" });
    expect(await daemon.exited).toBe(0);
  });
});
