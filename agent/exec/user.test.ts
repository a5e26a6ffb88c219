import { expect, test } from "bun:test";
import { chmod, mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

test("a home that its user cannot enter, as /root without root on the machine, is not HOME", async () => {
  const root = await mkdtemp(join(tmpdir(), "sandmesh-user-"));
  try {
    await chmod(root, 0o755);
    for (const folder of ["etc", "open", "closed"]) await mkdir(join(root, folder), { mode: 0o755 });
    await chmod(join(root, "closed"), 0o000);
    const homes = ["open", "closed", "missing"];
    const passwd = homes.map((home, at) => `${home}:x:${at + 1}:0::/${home}:/bin/sh\n`);
    await writeFile(join(root, "etc", "passwd"), passwd.join(""), { mode: 0o644 });
    // Root may enter everything, so that it is asked by another.
    const script = `
      const { resolveUser } = await import(${JSON.stringify(join(import.meta.dir, "user.ts"))});
      if (process.getuid() === 0) { process.setgroups([]); process.setgid(65534); process.setuid(65534); }
      console.log(${JSON.stringify(homes)}.map((name) => resolveUser(name, ${JSON.stringify(root)}).home).join(" "));`;
    const child = Bun.spawnSync([process.execPath, "-e", script]);
    expect([child.stdout.toString(), child.stderr.toString()]).toEqual(["/open /tmp /missing\n", ""]);
  } finally {
    await rm(root, { recursive: true, force: true });
  }
});

test("what stands at /etc/passwd in a file's place, such as a fifo, is not waited for, which would stop the whole daemon", async () => {
  const root = await mkdtemp(join(tmpdir(), "sandmesh-user-"));
  try {
    await mkdir(join(root, "etc"));
    Bun.spawnSync(["mkfifo", join(root, "etc", "passwd")]);
    await symlink("/dev/zero", join(root, "etc", "group"));
    const script = `
      const { resolveUser } = await import(${JSON.stringify(join(import.meta.dir, "user.ts"))});
      console.log(JSON.stringify(["7:8", "nobody"].map((name) => resolveUser(name, ${JSON.stringify(root)}) ?? null)));`;
    // A process of its own: what waits could not be ended from within.
    const child = Bun.spawnSync([process.execPath, "-e", script], { timeout: 20_000 });
    expect(JSON.parse(child.stdout.toString())).toEqual([{ uid: 7, gid: 8, groups: [8], home: "/" }, null]);
  } finally {
    await rm(root, { recursive: true, force: true });
  }
}, 30_000);
