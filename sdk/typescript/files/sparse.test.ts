import { afterEach, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { open } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { tarHeader } from "../../../broker/contract/tar/header.ts";
import { mapBlock, type Region } from "../../../broker/contract/tar/sparse.ts";
import { packFolder } from "./pack.ts";
import { unpackFolder } from "./unpack.ts";

const MiB = 1024 * 1024;
const made: string[] = [];
afterEach(() => {
  for (const path of made.splice(0)) rmSync(path, { recursive: true, force: true });
});

function scratch(): string {
  const path = mkdtempSync(join(tmpdir(), "sparse-sdk-"));
  made.push(path);
  return path;
}

const FILES: Record<string, [size: number, parts: [at: number, text: string][]]> = {
  middle: [
    64 * MiB,
    [
      [5 * MiB + 17, "x".repeat(70_000)],
      [40 * MiB, "y"],
    ],
  ],
  begin: [9 * MiB, [[0, "begin"]]],
  end: [9 * MiB, [[9 * MiB - 3, "end"]]],
  empty: [3 * MiB, []],
  odd: [3 * MiB + 1001, [[MiB, "odd"]]],
};

async function tree(root: string): Promise<string> {
  const from = join(root, "from");
  mkdirSync(from);
  for (const [name, [size, parts]] of Object.entries(FILES)) {
    const file = await open(join(from, name), "wx");
    for (const [at, text] of parts) await file.write(text, at);
    await file.truncate(size);
    await file.close();
  }
  writeFileSync(join(from, "whole"), "w".repeat(5000));
  return from;
}

function same(one: string, other: string, isSparse = true): void {
  for (const name of [...Object.keys(FILES), "whole"]) {
    expect([name, readFileSync(join(other, name)).equals(readFileSync(join(one, name)))]).toEqual([
      name,
      true,
    ]);
    const [was, is] = [statSync(join(one, name)).blocks, statSync(join(other, name)).blocks];
    if (isSparse) expect([name, is <= was]).toEqual([name, true]);
  }
}

test("holes stay holes, for GNU tar and Python's tarfile, too, and are not sent", async () => {
  const root = scratch();
  const from = await tree(root);
  const parts: Uint8Array[] = [];
  for await (const part of packFolder(from)) parts.push(part);
  const archive = Buffer.concat(parts);
  expect(archive.length).toBeLessThan(MiB);
  writeFileSync(join(root, "a.tar"), archive);
  await unpackFolder(
    (async function* () {
      for (let at = 0; at < archive.length; at += 1000) yield archive.subarray(at, at + 1000);
    })(),
    join(root, "own"),
  );
  same(from, join(root, "own"));
  mkdirSync(join(root, "gnu"));
  Bun.spawnSync(["tar", "-xf", "a.tar", "-C", "gnu"], { cwd: root });
  same(from, join(root, "gnu"));
  const code = 'import tarfile; tarfile.open("a.tar").extractall("python")';
  Bun.spawnSync(["python3", "-c", code], { cwd: root });
  same(from, join(root, "python"), false);
});

const HOSTILE: [why: string, map: Region[], size: number][] = [
  [
    "regions that overlap",
    [
      { offset: 0, length: 20 },
      { offset: 10, length: 20 },
    ],
    100,
  ],
  ["a region beyond the size", [{ offset: 90, length: 20 }], 100],
  ["another length than its content", [{ offset: 0, length: 50 }], 100],
  ["a negative region", [{ offset: -5, length: 5 }], 100],
];

test.each(HOSTILE)(
  "of a sandbox's archive %s is refused by an error that names the entry",
  async (_why, map, size) => {
    const root = scratch();
    const block = mapBlock(map);
    const stored = Math.min(
      40,
      map.reduce((sum, { length }) => sum + length, 0),
    );
    const entry = { mode: 0o644, uid: 0, gid: 0, mtimeMs: 0, size: block.length + stored, sparse: { size } };
    const header = tarHeader({ ...entry, type: "file", name: Buffer.from("evil") });
    const archive = Buffer.concat([header, block, Buffer.alloc(512), Buffer.alloc(1024)]);
    const source = (async function* () {
      yield archive;
    })();
    await expect(unpackFolder(source, join(root, "to"))).rejects.toMatchObject({
      code: "file_error",
      reason: "EINVAL",
      message: expect.stringContaining('"evil"'),
    });
  },
);
