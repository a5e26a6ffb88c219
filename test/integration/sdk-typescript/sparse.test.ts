// Files with holes, through the SDK, against a real daemon.
import { expect, test } from "bun:test";
import { mkdir, open, stat, symlink } from "node:fs/promises";
import { join } from "node:path";
import { liveBox, scratch } from "./mesh.ts";

const GiB = 1024 ** 3;
const MiB = 1024 ** 2;

async function makeSparse(path: string): Promise<void> {
  const file = await open(path, "wx");
  await file.write(Buffer.alloc(MiB, "d"), 0, MiB, GiB);
  await file.write("end", 2 * GiB);
  await file.truncate(3 * GiB);
  await file.close();
}

test("3 GiB of holes with 1 MiB of data are copied as holes, both ways, in a folder and alone", async () => {
  const box = await liveBox();
  await using _ = box.live;
  await using folder = await scratch();
  const here = folder.path;
  await mkdir(join(here, "from"));
  await makeSparse(join(here, "from/big"));
  await symlink("big", join(here, "from/link"));
  const { blocks } = await stat(join(here, "from/big"));
  await box.files.upload(join(here, "from"), "to");
  await box.files.upload(join(here, "from/link"), "alone/big");
  await box.files.download("to", join(here, "back"));
  await box.files.download("alone/big", join(here, "one"));
  for (const path of ["to/big", "alone/big"]) {
    expect(await box.files.stat(path)).toMatchObject({ size: 3 * GiB });
    expect((await box.files.stat(path)).allocated_bytes).toBeLessThanOrEqual(blocks * 512);
  }
  for (const path of ["back/big", "one"]) {
    const found = await stat(join(here, path));
    expect([found.size, found.blocks <= blocks]).toEqual([3 * GiB, true]);
    const same = Bun.spawnSync(["cmp", join(here, "from/big"), join(here, path)]);
    expect([path, same.exitCode]).toEqual([path, 0]);
  }
  // What is there keeps its mode; its holes are zeros then.
  await box.exec("echo old > there; chmod 640 there");
  const small = await open(join(here, "small"), "wx");
  await small.truncate(MiB);
  await small.close();
  await box.files.upload(join(here, "small"), "there");
  expect(await box.files.stat("there")).toMatchObject({ size: MiB });
}, 120_000);
