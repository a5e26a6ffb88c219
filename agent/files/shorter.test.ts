// A file that is cut off while it is read: what was read never stood in it, and is given to nobody as if it had.
import { afterEach, expect, test } from "bun:test";
import {
  appendFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import type { ByteSource } from "../../broker/endpoint/executor.ts";
import { testEngine, until } from "../exec/testing.ts";
import { createTrees } from "../trees/trees.ts";
import { createFiles } from "./files.ts";
import { cleanUp, drain, kept, openBelow, scene } from "./testing.ts";

afterEach(cleanUp);

const BYTES = 1_000_000;
/** Of which the kernel says that it has a page. */
const PAGE_IN_SYS = "/sys/kernel/mm/transparent_hugepage/enabled";

const shorter = (path: string) => ({
  code: "file_error",
  reason: "ESTALE",
  message: expect.stringContaining(`${path}: it became shorter while it was read`),
});

/** What `source` gives behind its first part, where `meanwhile` is done before that is read. */
async function restOf(source: ByteSource, meanwhile: () => void): Promise<unknown> {
  await source.read(4096);
  meanwhile();
  return await drain(source).catch((thrown: unknown) => thrown);
}

const entriesOf = (archive: Buffer, name: string): string =>
  Bun.spawnSync(["tar", "-xOf", "-", name], { stdin: archive }).stdout.toString();

test("a file that becomes shorter while it is read is a FileError that names it", async () => {
  const { root, files } = scene();
  const path = join(root, "f");
  for (const left of [400_000, 0]) {
    const cut = () => truncateSync(path, left);
    writeFileSync(path, Buffer.alloc(BYTES, 1));
    expect(await restOf(await files.read({ path, offset: 0 }), cut)).toMatchObject(shorter(path));
    writeFileSync(path, Buffer.alloc(BYTES, 1));
    const range = { path, offset: 350_000, length: 100_000 };
    expect(await restOf(await files.read(range), cut)).toMatchObject(shorter(path));
  }
  expect(openBelow(root)).toEqual([]);
});

test("what is cut off behind the range that is read, and what grows, goes as it is", async () => {
  const { root, files } = scene();
  const path = join(root, "f");
  writeFileSync(path, Buffer.alloc(BYTES, 1));
  const range = await restOf(await files.read({ path, offset: 0, length: 100_000 }), () =>
    truncateSync(path, 200_000),
  );
  expect(range).toEqual(Buffer.alloc(100_000 - 4096, 1));
  const grown = await restOf(await files.read({ path, offset: 0 }), () => appendFileSync(path, "more"));
  expect(grown).toEqual(Buffer.concat([Buffer.alloc(200_000 - 4096, 1), Buffer.from("more")]));
  expect((await drain(await files.read({ path, offset: BYTES }))).length).toBe(0);
});

test("a file that becomes shorter while its folder, or it alone, is packed is a FileError that names it", async () => {
  const { root, files } = scene();
  mkdirSync(join(root, "d"));
  const path = join(root, "d/a");
  writeFileSync(join(root, "d/b"), "after");
  for (const packed of [join(root, "d"), `${root}/d/`, path]) {
    writeFileSync(path, Buffer.alloc(BYTES, 1));
    const end = await restOf(await files.pack(packed), () => truncateSync(path, 400_000));
    expect(end).toMatchObject(shorter(path));
  }
  expect(openBelow(root)).toEqual([]);
});

test("a file with holes that becomes shorter while it is packed is a FileError that names it", async () => {
  const { root } = scene();
  const engine = await testEngine();
  const path = join(root, "f");
  writeFileSync(path, "");
  truncateSync(path, BYTES);
  appendFileSync(path, Buffer.alloc(BYTES, 1));
  const source = await createFiles({ cwd: root, folders: engine.folders }).pack(path);
  expect(await restOf(source, () => truncateSync(path, BYTES + 8192))).toMatchObject(shorter(path));
});

test("of a small file that is cut off and written again all the time nothing is packed but what stood in it", async () => {
  const { root, files } = scene();
  mkdirSync(join(root, "d"));
  const path = join(root, "d/a");
  writeFileSync(path, "");
  const script = `const { openSync, ftruncateSync, writeSync } = require("node:fs");
    const file = openSync(${JSON.stringify(path)}, "r+");
    const content = Buffer.alloc(60_000, "1");
    for (;;) { ftruncateSync(file, 0); writeSync(file, content, 0, content.length, 0); }`;
  await using writer = Bun.spawn([process.execPath, "-e", script]);
  for (let told = 0; told < 3; ) {
    const got = await drain(await files.pack("d")).catch((thrown: unknown) => thrown);
    if (got instanceof Buffer) expect(entriesOf(got, "a")).toMatch(/^1*$/);
    else {
      expect(got).toMatchObject(shorter("d/a"));
      told++;
    }
  }
  writer.kill();
});

test("a file that becomes shorter while it is hashed is a FileError that names it", async () => {
  const { root } = scene();
  const engine = await testEngine();
  const trees = createTrees({ cwd: root, engine });
  const path = join(root, "f");
  writeFileSync(path, "");
  truncateSync(path, 4 * 1024 ** 3);
  const hashing = trees.hash(path, kept).catch((thrown: unknown) => thrown);
  await until("some of it is read", () => readIn(path) > 0);
  truncateSync(path, 0);
  expect(await hashing).toMatchObject(shorter(path));
  await trees.close();
});

/** How far this process has read the file. */
function readIn(path: string): number {
  for (const fd of readdirSync("/proc/self/fd")) {
    try {
      if (readlinkSync(`/proc/self/fd/${fd}`) !== path) continue;
      return Number(/^pos:\s*(\d+)/.exec(readFileSync(`/proc/self/fdinfo/${fd}`, "utf8"))?.[1]);
    } catch {
      // That of the listing itself, which is closed by now.
    }
  }
  return 0;
}

test("a file of /sys, which is said to have a page, is read, hashed and packed as what it holds", async () => {
  const { root, files } = scene();
  const engine = await testEngine();
  const content = readFileSync(PAGE_IN_SYS, "utf8");
  expect(content.length).toBeLessThan(4096);
  expect((await drain(await files.read({ path: PAGE_IN_SYS, offset: 0 }))).toString()).toBe(content);
  const trees = createTrees({ cwd: root, engine });
  expect((await trees.hash(PAGE_IN_SYS, kept)).size).toBe(content.length);
  await trees.close();
  const folder = join(PAGE_IN_SYS, "..");
  expect(entriesOf(await drain(await files.pack(folder)), "enabled")).toBe(content);
  expect(entriesOf(await drain(await files.pack(PAGE_IN_SYS)), "enabled")).toBe(content);
});
