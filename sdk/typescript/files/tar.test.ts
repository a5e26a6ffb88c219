import { afterEach, beforeEach, expect, test } from "bun:test";
import {
  appendFile,
  chmod,
  link,
  lstat,
  lutimes,
  mkdir,
  mkdtemp,
  readFile,
  readlink,
  rm,
  stat,
  symlink,
  truncate,
  utimes,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Header, pack } from "tar-stream";
import { packFolder } from "./pack.ts";
import { unpackFolder } from "./unpack.ts";

let base: string;
beforeEach(async () => {
  base = await mkdtemp(join(tmpdir(), "sandmesh-tar-"));
});
afterEach(() => rm(base, { recursive: true, force: true }));

const LONG = `${"long-name-".repeat(25)}x`;

test("modes, links, times, empty files and folders, and long names survive the way there and back", async () => {
  const from = join(base, "from");
  await mkdir(join(from, "sub", "empty"), { recursive: true });
  await writeFile(join(from, "sub", LONG), Buffer.alloc(300_000, 7));
  await writeFile(join(from, "run.sh"), "#!/bin/sh\n");
  await chmod(join(from, "run.sh"), 0o750);
  await writeFile(join(from, "empty"), "");
  await symlink("sub/empty", join(from, "link"));
  await symlink("/nowhere/at/all", join(from, "broken"));
  await utimes(join(from, "run.sh"), 1_600_000_000, 1_600_000_000);
  await chmod(join(from, "sub"), 0o550);

  const to = join(base, "to");
  await unpackFolder(packFolder(from), to);

  expect((await readFile(join(to, "sub", LONG))).equals(Buffer.alloc(300_000, 7))).toBe(true);
  expect((await stat(join(to, "run.sh"))).mode & 0o7777).toBe(0o750);
  expect((await stat(join(to, "run.sh"))).mtimeMs).toBe(1_600_000_000_000);
  expect((await stat(join(to, "empty"))).size).toBe(0);
  expect((await stat(join(to, "sub"))).mode & 0o7777).toBe(0o550);
  expect((await stat(join(to, "sub", "empty"))).isDirectory()).toBe(true);
  expect(await readlink(join(to, "link"))).toBe("sub/empty");
  expect(await readlink(join(to, "broken"))).toBe("/nowhere/at/all");
});

/** An archive as an enemy writes it. */
async function* archive(entries: [header: Partial<Header> & { name: string }, content?: string][]) {
  const tar = pack();
  for (const [header, content] of entries) tar.entry(header, content ?? "");
  tar.finalize();
  for await (const part of tar) yield part as Uint8Array;
}

test("no entry of an archive leaves the folder, by name or through a link of its own", async () => {
  const to = join(base, "to");
  const outside = join(base, "outside");
  await mkdir(outside);
  for (const entries of [
    [[{ name: "../outside/a" }, "bad"]],
    [[{ name: `sub/../../outside/b` }, "bad"]],
    [[{ name: "out", type: "symlink", linkname: outside }], [{ name: "out/c" }, "bad"]],
    [[{ name: "d", type: "link", linkname: "../outside/secret" }]],
  ] as Parameters<typeof archive>[0][]) {
    await writeFile(join(outside, "secret"), "secret");
    await unpackFolder(archive(entries), to).catch((error: unknown) => {
      expect(error).toMatchObject({ code: "file_error" });
    });
    await rm(join(outside, "secret"));
    // Empty, so that nothing was written into it.
    await rm(outside, { recursive: false, force: true }).catch(() => undefined);
    const left = await lstat(outside);
    expect(left.isDirectory()).toBe(true);
    expect(await Array.fromAsync(new Bun.Glob("**").scan({ cwd: outside }))).toEqual([]);
    await rm(to, { recursive: true, force: true });
  }
});

test("a link that was there before is replaced, not written through", async () => {
  const to = join(base, "to");
  await mkdir(to);
  await writeFile(join(base, "victim"), "safe");
  await symlink(join(base, "victim"), join(to, "file"));
  await unpackFolder(archive([[{ name: "file" }, "new"]]), to);
  expect(await readFile(join(base, "victim"), "utf8")).toBe("safe");
  expect(await readFile(join(to, "file"), "utf8")).toBe("new");
});

test("a folder that an archive names twice gets the mode and time that it names last", async () => {
  const to = join(base, "to");
  const folder = (name: string, mode: number, seconds: number): Parameters<typeof archive>[0][number] => [
    { name, type: "directory", mode, mtime: new Date(seconds * 1000) },
  ];
  const entries = [
    folder("d", 0o700, 1),
    folder("d/e", 0o711, 2),
    folder("./d/e/", 0o750, 3),
    folder("d", 0o755, 4),
  ];
  await unpackFolder(archive(entries), to);
  const found = await Promise.all(["d", "d/e"].map((name) => stat(join(to, name))));
  expect(found.map(({ mode, mtimeMs }) => [mode & 0o7777, mtimeMs])).toEqual([
    [0o755, 4000],
    [0o750, 3000],
  ]);
});

test("a file with several names comes back as one, also one with holes and under odd and long names", async () => {
  const [from, to] = [join(base, "from"), join(base, "to")];
  await mkdir(join(from, "sub"), { recursive: true });
  await writeFile(at(from, ODD), "x");
  await link(at(from, ODD), join(from, "sub", "same"));
  await writeFile(join(from, LONG), "");
  await truncate(join(from, LONG), 100_000);
  await link(join(from, LONG), join(from, "sub", "hole"));
  // One other name is out of the tree.
  await writeFile(join(base, "out"), "y");
  await link(join(base, "out"), join(from, "alone"));
  await unpackFolder(packFolder(from), to);
  const found = async (path: string | Buffer) => await stat(path, { bigint: true });
  const [odd, same] = [await found(at(to, ODD)), await found(join(to, "sub", "same"))];
  const [long, hole] = [await found(join(to, LONG)), await found(join(to, "sub", "hole"))];
  expect([same.ino, hole.ino, same.nlink, hole.nlink]).toEqual([odd.ino, long.ino, 2n, 2n]);
  expect([await readFile(join(to, "sub", "same"), "utf8"), hole.size]).toEqual(["x", 100_000n]);
  expect([await readFile(join(to, "alone"), "utf8"), (await found(join(to, "alone"))).nlink]).toEqual([
    "y",
    1n,
  ]);
});

test("times before 1970 come back, of files, folders and symlinks", async () => {
  const [from, to] = [join(base, "from"), join(base, "to")];
  await mkdir(join(from, "folder"), { recursive: true });
  await writeFile(at(from, ODD), "x");
  await symlink("nowhere", join(from, "link"));
  // As text: a number before 1970 is taken for now.
  await utimes(at(from, ODD), "-86400.25", "-86400.25");
  await utimes(join(from, "folder"), "-1.5", "-1.5");
  await lutimes(join(from, "link"), "-5", "-5");
  await unpackFolder(packFolder(from), to);
  const times = [at(to, ODD), join(to, "folder"), join(to, "link")].map(
    async (path) => (await lstat(path)).mtimeMs,
  );
  expect(await Promise.all(times)).toEqual([-86_400_250, -1500, -5000]);
});

test("a hard link of the archive becomes one", async () => {
  const to = join(base, "to");
  await unpackFolder(archive([[{ name: "a" }, "x"], [{ name: "b", type: "link", linkname: "a" }]]), to);
  expect((await lstat(join(to, "a"))).ino).toBe((await lstat(join(to, "b"))).ino);
});

test("an archive that ends in the middle is an error, not a half folder that looks whole", async () => {
  const source = async function* () {
    for await (const part of archive([[{ name: "a" }, "x".repeat(100_000)]])) yield part.subarray(0, 50_000);
  };
  const whole = await unpackFolder(source(), join(base, "to")).then(
    () => true,
    () => false,
  );
  expect(whole).toBe(false);
});

test("a source that fails fails the unpacking with its own error", async () => {
  const source = async function* () {
    yield new Uint8Array(0);
    throw new Error("the way was cut");
  };
  await expect(unpackFolder(source(), join(base, "to"))).rejects.toThrow("the way was cut");
});

const ODD = Buffer.concat([Buffer.from("odd-"), Buffer.from([0xff, 0xfe, 0x80])]);
const at = (folder: string, ...names: (string | Buffer)[]): Buffer =>
  Buffer.concat([Buffer.from(folder), ...names.flatMap((name) => [Buffer.from("/"), Buffer.from(name)])]);

test("names and link targets that are not UTF-8 come back byte for byte, also long ones", async () => {
  const from = join(base, "from");
  const long = Buffer.concat([ODD, Buffer.alloc(150, 0xe9)]);
  await mkdir(at(from, ODD), { recursive: true });
  await writeFile(at(from, ODD, long), "deep");
  await symlink(long, at(from, ODD, "link"));
  const to = join(base, "to");
  await unpackFolder(packFolder(from), to);
  expect(await readFile(at(to, ODD, long), "utf8")).toBe("deep");
  expect(Buffer.compare(await readlink(at(to, ODD, "link"), { encoding: "buffer" }), long)).toBe(0);
});

test("what an archive cannot hold is named, and the rest goes", async () => {
  const from = join(base, "from");
  await mkdir(join(from, "sub"), { recursive: true });
  await writeFile(join(from, "sub", "file"), "x");
  Bun.spawnSync(["mkfifo", join(from, "sub", "pipe")]);
  const skipped: string[] = [];
  await unpackFolder(
    packFolder(from, (path) => skipped.push(path)),
    join(base, "to"),
  );
  expect(skipped).toEqual([join(from, "sub", "pipe")]);
  expect(await readFile(join(base, "to", "sub", "file"), "utf8")).toBe("x");
});

/** Packs `from`, and does `meanwhile` when the header of the first file has been given. */
async function packedWhile(from: string, meanwhile: () => Promise<void>): Promise<unknown> {
  try {
    let parts = 0;
    // The first is the folder itself.
    for await (const _ of packFolder(from)) if (++parts === 2) await meanwhile();
  } catch (error) {
    return error;
  }
  return undefined;
}

test("a file that is cut off, or goes away, while it is read is a FileError that names it", async () => {
  const from = join(base, "from");
  await mkdir(from);
  for (const name of ["a", "b"]) await writeFile(join(from, name), Buffer.alloc(1_000_000, 1));
  expect(await packedWhile(from, () => truncate(join(from, "a"), 400_000))).toMatchObject({
    code: "file_error",
    reason: "ESTALE",
    message: expect.stringContaining(join(from, "a")),
  });
  await writeFile(join(from, "a"), "whole again");
  expect(await packedWhile(from, () => rm(join(from, "b")))).toMatchObject({
    code: "file_error",
    reason: "ENOENT",
    message: expect.stringContaining(join(from, "b")),
  });
});

test("a file that grows while it is read goes as it was when it was opened", async () => {
  const from = join(base, "from");
  await mkdir(from);
  await writeFile(join(from, "log"), Buffer.alloc(600_000, 1));
  const source = async function* () {
    let parts = 0;
    for await (const part of packFolder(from)) {
      yield part;
      // The first is the folder itself.
      if (++parts > 1) await appendFile(join(from, "log"), "more");
    }
  };
  await unpackFolder(source(), join(base, "to"));
  expect((await readFile(join(base, "to", "log"))).equals(Buffer.alloc(600_000, 1))).toBe(true);
});

test("a path that is longer than any may be is a file's error, and told in short", async () => {
  const tooLong = `${base}/${"n".repeat(200).concat("/").repeat(25)}`;
  const failed = await unpackFolder(archive([[{ name: "x" }, "x"]]), tooLong).catch(
    (error: unknown) => error,
  );
  expect(failed).toMatchObject({ code: "file_error", reason: "ENAMETOOLONG" });
  expect(String(failed).length).toBeLessThan(1_000);
});

test("a folder that may not be searched is told as that, and not taken for a missing one", async () => {
  // Root may search all: the kernel's refusal is had from a name that is too long for it.
  const tooLong = "n".repeat(300);
  const failed = await unpackFolder(archive([[{ name: `${tooLong}/x` }, "x"]]), join(base, "to")).catch(
    (error: unknown) => error,
  );
  expect(failed).toMatchObject({ code: "file_error", reason: "ENAMETOOLONG" });
});

test("an archive that is cut off between two files ends the unpacking with what cut it off, wherever that is", async () => {
  const from = join(base, "from");
  await mkdir(from);
  for (let i = 0; i < 20; i++) await writeFile(join(from, `${i}`), "x".repeat(i * 40));
  const parts: Uint8Array[] = [];
  for await (const part of packFolder(from)) parts.push(part);
  const all = Buffer.concat(parts);
  for (let cut = 0; cut < all.length; cut += 512) {
    async function* source(): AsyncGenerator<Uint8Array> {
      yield all.subarray(0, cut);
      throw new Error("cut off");
    }
    await expect(unpackFolder(source(), join(base, "to"))).rejects.toThrow("cut off");
  }
});
