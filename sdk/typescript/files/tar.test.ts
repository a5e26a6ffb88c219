import { afterEach, beforeEach, expect, test } from "bun:test";
import {
  chmod,
  lstat,
  mkdir,
  mkdtemp,
  readFile,
  readlink,
  rm,
  stat,
  symlink,
  utimes,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Header, pack } from "tar-stream";
import { packFolder, unpackFolder } from "./tar.ts";

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
