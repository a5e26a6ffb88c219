// What a power cut leaves of what was written with fsync: the disk is copied as it is at that moment, and the copy mounted.
import { afterEach, expect, test } from "bun:test";
import { copyFileSync, mkdirSync, readFileSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { cleanUp, fill, scene, written } from "./testing.ts";

afterEach(cleanUp);

function ran(...argv: string[]): boolean {
  return Bun.spawnSync(argv, { stdout: "ignore", stderr: "ignore" }).exitCode === 0;
}

// Disks are root's to make and to mount.
test.if(process.getuid?.() === 0 && Bun.which("mkfs.ext4") !== null)(
  "what was written with fsync is there after a power cut, whole and by its name: a new file, a replaced one, an append",
  async () => {
    const { root, files } = scene();
    const [disk, cut, mount] = [join(root, "disk"), join(root, "cut"), join(root, "mount")];
    writeFileSync(disk, "");
    truncateSync(disk, 32 * 1024 * 1024);
    mkdirSync(mount);
    expect(ran("mkfs.ext4", "-q", "-F", disk)).toBe(true);
    const data = Buffer.alloc(300_000, "written ");
    const names = ["new", "replaced", "appended"];
    // Where a container is given no loop devices there is no disk of one's own.
    if (!ran("mount", "-o", "loop", disk, mount)) return;
    try {
      for (const name of ["replaced", "appended"]) writeFileSync(join(mount, name), "before ");
      ran("sync", "--file-system", mount);
      for (const name of names) {
        const options = { ...written, path: `mount/${name}`, append: name === "appended", fsync: true };
        await fill(await files.write(options), data);
      }
      copyFileSync(disk, cut);
    } finally {
      expect(ran("umount", mount)).toBe(true);
    }
    expect(ran("mount", "-o", "loop", cut, mount)).toBe(true);
    try {
      const found = names.map((name) => readFileSync(join(mount, name)));
      expect(found.map((bytes) => bytes.length)).toEqual([300_000, 300_000, 300_007]);
      expect(found.map((bytes) => bytes.subarray(-300_000).equals(data))).toEqual([true, true, true]);
    } finally {
      expect(ran("umount", mount)).toBe(true);
    }
  },
  30_000,
);
