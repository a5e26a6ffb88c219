import { afterEach, expect, test } from "bun:test";
import {
  chmodSync,
  chownSync,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { CanceledError } from "../../broker/contract/index.ts";
import { cleanUp, drafts, drain, fill, kept, openBelow, reasonOf, scene, written } from "./testing.ts";

afterEach(cleanUp);

/** Nobody takes it back. */
const never = new AbortController().signal;

const random = (bytes: number): Buffer => Buffer.from(crypto.getRandomValues(new Uint8Array(bytes)));

test("bytes of all values and uneven parts come back as they were written", async () => {
  const { root, files } = scene();
  const data = random(60_000);
  await fill(await files.write({ ...written, path: "deep/er/f.bin" }), data, 7001);
  expect(readFileSync(join(root, "deep/er/f.bin")).equals(data)).toBe(true);
  const source = await files.read({ path: "deep/er/f.bin", offset: 0 });
  expect(source.size).toBe(60_000);
  expect((await drain(source, 999)).equals(data)).toBe(true);
  expect(openBelow(root)).toEqual([]);
});

test.if(process.getuid?.() === 0)(
  "a file whose owner the user namespace does not have is written, and does not fail for that owner",
  async () => {
    const { root } = scene();
    const path = join(root, "f");
    writeFileSync(path, "old", { mode: 0o640 });
    chownSync(path, 4321, 4321);
    const script = `const { openForWriting } = await import(${JSON.stringify(join(import.meta.dir, "write.ts"))});
      const { openGround } = await import(${JSON.stringify(join(import.meta.dir, "ground.ts"))});
      const options = { path: ${JSON.stringify(path)}, append: false, parents: true, fsync: false };
      const sink = await openForWriting(openGround("/"), options);
      await sink.write(Buffer.from("new"));
      await sink.finish();`;
    const child = Bun.spawn(["unshare", "--user", "--map-root-user", process.execPath, "-e", script], {
      stderr: "pipe",
    });
    expect([await new Response(child.stderr).text(), await child.exited]).toEqual(["", 0]);
    expect(readFileSync(path, "utf8")).toBe("new");
    const { uid, mode } = statSync(path);
    expect([uid, mode & 0o777]).toEqual([0, 0o640]);
    expect(drafts(root)).toEqual([]);
  },
);

test("a file is not visible, nor changed, before its write is finished", async () => {
  const { root, files } = scene();
  const path = join(root, "f");
  const first = await files.write({ ...written, path });
  await first.write(Buffer.from("half"));
  expect(existsSync(path)).toBe(false);
  await first.finish();
  const second = await files.write({ ...written, path });
  await second.write(Buffer.from("other"));
  expect(readFileSync(path, "utf8")).toBe("half");
  await second.abort();
  expect(readFileSync(path, "utf8")).toBe("half");
  expect(drafts(root)).toEqual([]);
});

test("a rewritten script stays executable, and a new file gets the mode asked for", async () => {
  const { root, files } = scene();
  writeFileSync(join(root, "run"), "a");
  chmodSync(join(root, "run"), 0o751);
  await fill(await files.write({ ...written, path: "run" }), Buffer.from("b"));
  expect(statSync(join(root, "run")).mode & 0o7777).toBe(0o751);
  await fill(
    await files.write({ ...written, path: "new", mode: 0o6640, mtimeMs: 1_700_000_000_250 }),
    Buffer.from("c"),
  );
  const stat = await files.stat("new", true);
  expect(stat).toMatchObject({
    path: "new",
    type: "file",
    size: 1,
    mode: 0o6640,
    mtime_ms: 1_700_000_000_250,
  });
});

test("a file written with a time before 1970 has that", async () => {
  const { root, files } = scene();
  await fill(await files.write({ ...written, path: "old", mtimeMs: -86_400_250 }), Buffer.from("c"));
  expect(statSync(join(root, "old")).mtimeMs).toBe(-86_400_250);
});

test("a write through a symlink keeps the link and changes what it leads to, also where that is not there yet", async () => {
  const { root, files } = scene();
  mkdirSync(join(root, "real"));
  writeFileSync(join(root, "real/f"), "old");
  symlinkSync("real/f", join(root, "link"));
  symlinkSync("real/later", join(root, "dangling"));
  await fill(await files.write({ ...written, path: "link" }), Buffer.from("new"));
  await fill(await files.write({ ...written, path: "dangling", fsync: true }), Buffer.from("made"));
  expect(readlinkSync(join(root, "link"))).toBe("real/f");
  expect(readFileSync(join(root, "real/f"), "utf8")).toBe("new");
  expect(readFileSync(join(root, "real/later"), "utf8")).toBe("made");
});

test("an append adds at the end, and an aborted one adds nothing", async () => {
  const { root, files } = scene();
  const append = { ...written, append: true, path: "log" };
  await fill(await files.write(append), Buffer.from("one\n"));
  const aborted = await files.write(append);
  await aborted.write(Buffer.from("never\n"));
  await aborted.abort();
  await fill(await files.write(append), Buffer.from("two\n"));
  expect(readFileSync(join(root, "log"), "utf8")).toBe("one\ntwo\n");
});

test("devices and files of /proc are written and read, not replaced", async () => {
  const { files } = scene();
  await fill(await files.write({ ...written, path: "/dev/null" }), Buffer.from("gone"));
  expect(statSync("/dev/null").isCharacterDevice()).toBe(true);
  const zeros = await drain(await files.read({ path: "/dev/zero", offset: 0, length: 70_000 }));
  expect(zeros.equals(Buffer.alloc(70_000))).toBe(true);
  const status = await files.read({ path: "/proc/self/status", offset: 0 });
  expect(status.size).toBeUndefined();
  expect((await drain(status, 100)).toString()).toContain(`Pid:\t${process.pid}`);
  const comm = readFileSync("/proc/self/comm", "utf8");
  await fill(await files.write({ ...written, path: "/proc/self/comm" }), Buffer.from("renamed"));
  expect(readFileSync("/proc/self/comm", "utf8")).toBe("renamed\n");
  writeFileSync("/proc/self/comm", comm.trim());
});

test("a range is read to the byte, and one behind the end is empty", async () => {
  const { root, files } = scene();
  writeFileSync(join(root, "f"), "0123456789");
  expect((await drain(await files.read({ path: "f", offset: 3, length: 4 }), 3)).toString()).toBe("3456");
  expect((await drain(await files.read({ path: "f", offset: 8, length: 9 }))).toString()).toBe("89");
  expect((await drain(await files.read({ path: "f", offset: 10 }))).length).toBe(0);
  expect((await drain(await files.read({ path: "f", offset: 0, length: 0 }))).length).toBe(0);
});

test("what has no content is refused at once, with its errno, and holds no descriptor", async () => {
  const { root, files } = scene();
  Bun.spawnSync(["mkfifo", join(root, "fifo")]);
  expect(await reasonOf(files.read({ path: "fifo", offset: 0 }))).toBe("EINVAL");
  expect(await reasonOf(files.write({ ...written, path: "fifo" }))).toBe("EINVAL");
  expect(await reasonOf(files.read({ path: ".", offset: 0 }))).toBe("EISDIR");
  expect(await reasonOf(files.write({ ...written, path: "." }))).toBe("EISDIR");
  expect(await reasonOf(files.read({ path: "nope", offset: 0 }))).toBe("ENOENT");
  expect(await reasonOf(files.read({ path: "/dev/zero", offset: 0 }))).toBe("EINVAL");
  expect(await reasonOf(files.write({ ...written, path: "no/such", parents: false }))).toBe("ENOENT");
  writeFileSync(join(root, "f"), "");
  expect(await reasonOf(files.write({ ...written, path: "f/g" }))).toBe("ENOTDIR");
  expect(await reasonOf(files.rename("nope", "g"))).toBe("ENOENT");
  expect(await reasonOf(files.stat("f/g", true))).toBe("ENOTDIR");
  symlinkSync("loop", join(root, "loop"));
  expect(await reasonOf(files.write({ ...written, path: "loop" }))).toBe("ELOOP");
  expect(openBelow(root)).toEqual([]);
});

test("a full disk leaves the old file and no draft", async () => {
  const { root, files } = scene();
  const mount = join(root, "small");
  mkdirSync(mount);
  // Where mounting is not allowed, a file size that no file system takes fails in the same place.
  const mounted = Bun.spawnSync(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", mount]).exitCode === 0;
  if (!mounted) return expect(process.geteuid?.()).not.toBe(0);
  try {
    writeFileSync(join(mount, "f"), "old");
    const sink = await files.write({ ...written, path: "small/f" });
    expect(await reasonOf(fill(sink, Buffer.alloc(256 * 1024)))).toBe("ENOSPC");
    expect(readFileSync(join(mount, "f"), "utf8")).toBe("old");
    expect(drafts(mount)).toEqual([]);
  } finally {
    Bun.spawnSync(["umount", mount]);
  }
});

test("a folder is listed in pages, each entry once, links as links", async () => {
  const { root, files } = scene();
  for (let i = 0; i < 25; i++) writeFileSync(join(root, `f${i}`), "x".repeat(i));
  symlinkSync("f1", join(root, "a-link"));
  mkdirSync(join(root, "z"));
  const names: string[] = [];
  let after: string | undefined;
  for (let pages = 1; ; pages++) {
    const page = await files.list(".", after, 10, kept);
    names.push(...page.entries.map((entry) => entry.path));
    after = names.at(-1);
    if (page.more) continue;
    expect(pages).toBe(3);
    break;
  }
  expect(names.length).toBe(27);
  expect(names).toEqual([...new Set(names)].sort());
  const [first] = (await files.list(".", undefined, 1, kept)).entries;
  expect(first).toMatchObject({ path: "a-link", type: "symlink", target: "f1" });
  expect(await reasonOf(files.list("f1", undefined, 10, kept))).toBe("ENOTDIR");
});

test("a name that is not UTF-8 breaks neither the listing nor the removal of its folder", async () => {
  const { root, files } = scene();
  mkdirSync(join(root, "d"));
  writeFileSync(Buffer.concat([Buffer.from(`${root}/d/`), Buffer.from([0xff, 0xfe])]), "x");
  expect((await files.list("d", undefined, 10, kept)).entries).toMatchObject([{ type: "file", size: 1 }]);
  await files.remove("d", true, false, never);
  expect(existsSync(join(root, "d"))).toBe(false);
});

test("removal takes links themselves, never what they lead to", async () => {
  const { root, files } = scene();
  mkdirSync(join(root, "keep"));
  writeFileSync(join(root, "keep/f"), "x");
  mkdirSync(join(root, "tree/sub"), { recursive: true });
  symlinkSync("../keep", join(root, "tree/link"));
  symlinkSync("keep", join(root, "top"));
  linkSync(join(root, "keep/f"), join(root, "tree/sub/hard"));
  await files.remove("tree", true, false, never);
  await files.remove("top/", true, false, never);
  expect(existsSync(join(root, "tree"))).toBe(false);
  expect(existsSync(join(root, "top"))).toBe(false);
  expect(readFileSync(join(root, "keep/f"), "utf8")).toBe("x");
  expect(openBelow(root)).toEqual([]);
});

test("a folder is removed only when asked for, and what is missing only counts when asked", async () => {
  const { root, files } = scene();
  mkdirSync(join(root, "d"));
  expect(await reasonOf(files.remove("d", false, false, never))).toBe("EISDIR");
  expect(await reasonOf(files.remove("nope", false, false, never))).toBe("ENOENT");
  await files.remove("nope", false, true, never);
  for (const path of ["/", "//", "/.", ".", "./", "..", "d/..", "d/.", "/tmp/.."]) {
    expect(await reasonOf(files.remove(path, true, true, never))).toBe("EINVAL");
  }
  expect(existsSync(join(root, "d"))).toBe(true);
});

test("a tree deeper than a path may be long is removed", async () => {
  const { root, files } = scene();
  const script = `mkdir top && cd top && for i in $(seq 60); do mkdir ${"n".repeat(200)} && cd -P ${"n".repeat(200)} || exit 1; done`;
  expect(Bun.spawnSync(["bash", "-c", script], { cwd: root }).exitCode).toBe(0);
  await files.remove("top", true, false, never);
  expect(existsSync(join(root, "top"))).toBe(false);
});

test("a removal that is taken back ends, and leaves the rest of the tree", async () => {
  const { root, files } = scene();
  mkdirSync(join(root, "tree/sub"), { recursive: true });
  for (let i = 0; i < 20; i++) writeFileSync(join(root, `tree/sub/f${i}`), "");
  const abort = new AbortController();
  const { signal } = abort;
  // Taken back while it is under way: when it has looked whether it is for the tenth time.
  const look = signal.throwIfAborted.bind(signal);
  let looks = 0;
  signal.throwIfAborted = () => {
    if (++looks === 10) abort.abort(new CanceledError("taken back"));
    look();
  };
  const removed = await files.remove("tree", true, false, signal).catch((error: unknown) => error);
  expect(removed).toMatchObject({ code: "canceled" });
  const left = readdirSync(join(root, "tree/sub")).length;
  expect([left > 0, left < 20]).toEqual([true, true]);
  expect(openBelow(root)).toEqual([]);
});

test("a listing that is taken back ends, and looks at no further entry", async () => {
  const { root, files } = scene();
  for (let i = 0; i < 500; i++) writeFileSync(join(root, `f${i}`), "");
  const abort = new AbortController();
  const { signal } = abort;
  const look = signal.throwIfAborted.bind(signal);
  let looks = 0;
  signal.throwIfAborted = () => {
    if (++looks === 4) abort.abort(new CanceledError("taken back"));
    look();
  };
  expect(await files.list(".", undefined, 1000, signal).catch((error: unknown) => error)).toMatchObject({
    code: "canceled",
  });
  expect(looks).toBe(4);
});

test("a folder swapped for a symlink while its tree is removed leads nowhere", async () => {
  const { root, files } = scene();
  mkdirSync(join(root, "outside"));
  for (let i = 0; i < 200; i++) writeFileSync(join(root, `outside/f${i}`), "x");
  mkdirSync(join(root, "tree/victim"), { recursive: true });
  const swapper = Bun.spawn(
    [
      "bash",
      "-c",
      "while :; do rm -rf tree/victim; ln -s ../outside tree/victim; rm -f tree/victim; mkdir -p tree/victim; done 2>/dev/null",
    ],
    { cwd: root },
  );
  try {
    for (let i = 0; i < 60; i++) await files.remove("tree/victim", true, true, never).catch(() => {});
  } finally {
    swapper.kill("SIGKILL");
    await swapper.exited;
  }
  for (let i = 0; i < 200; i++) expect(existsSync(join(root, `outside/f${i}`))).toBe(true);
});

test("folders are made with their parents and the mode asked for, and an existing one only where that is fine", async () => {
  const { root, files } = scene();
  await files.mkdir("a/b/c", 0o2770, true);
  expect(lstatSync(join(root, "a/b/c")).mode & 0o7777).toBe(0o2770);
  await files.mkdir("a/b/c", 0o700, true);
  expect(lstatSync(join(root, "a/b/c")).mode & 0o7777).toBe(0o2770);
  expect(await reasonOf(files.mkdir("a/b/c", undefined, false))).toBe("EEXIST");
  expect(await reasonOf(files.mkdir("x/y", undefined, false))).toBe("ENOENT");
});

test("what a link leads to is told where asked for, and the link itself otherwise", async () => {
  const { root, files } = scene();
  writeFileSync(join(root, "f"), "abc");
  symlinkSync("f", join(root, "link"));
  expect(await files.stat("link", true)).toMatchObject({ type: "file", size: 3 });
  expect(await files.stat("link", false)).toMatchObject({ type: "symlink", target: "f" });
  await files.rename("link", "moved");
  expect(readlinkSync(join(root, "moved"))).toBe("f");
});
