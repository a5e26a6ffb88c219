// Files through the SDK, against real daemons.
import { expect, test } from "bun:test";
import {
  chmod,
  link,
  mkdir,
  readdir,
  readFile,
  readlink,
  stat,
  symlink,
  utimes,
  writeFile,
} from "node:fs/promises";
import { join } from "node:path";
import { until } from "../../../broker/server/testing.ts";
import { CanceledError, FileError } from "../../../sdk/typescript/mod.ts";
import { liveBox, liveMesh, scratch } from "./mesh.ts";

const LONG = 60_000;

const noise = (length: number): Buffer => {
  const bytes = Buffer.alloc(length);
  for (let i = 0, x = 1; i < length; i++) {
    x = (x * 1103515245 + 12345) & 0x7fffffff;
    bytes[i] = x >> 16;
  }
  return bytes;
};

test(
  "bytes come back as they were written, at all sizes around the wire's parts",
  async () => {
    const sandbox = await liveBox();
    await using _ = sandbox.live;
    for (const size of [0, 1, 256 * 1024 - 1, 256 * 1024, 256 * 1024 + 1, 3 * 1024 * 1024 + 7]) {
      const bytes = noise(size);
      expect(await sandbox.files.write("f", bytes)).toBe(size);
      expect(Buffer.compare(Buffer.from(await sandbox.files.read("f")), bytes)).toBe(0);
    }
    const range = await sandbox.files.read("f", { offset: 5, length: 7 });
    expect([...range]).toEqual([...noise(3 * 1024 * 1024 + 7).subarray(5, 12)]);
    for (const length of [2_000_000, 4_000_000]) {
      const large = Buffer.from(await sandbox.files.read("f", { offset: 1_000_001, length }));
      expect(large.equals(noise(3 * 1024 * 1024 + 7).subarray(1_000_001, 1_000_001 + length))).toBe(true);
    }
    await sandbox.files.write("text", "é\u{feff}\n");
    await sandbox.files.write("text", "more", { append: true });
    expect(await sandbox.files.readText("text")).toBe("é\u{feff}\nmore");
  },
  LONG,
);

test(
  "folders, modes, names and errors",
  async () => {
    const sandbox = await liveBox();
    await using _ = sandbox.live;
    const { files } = sandbox;
    await files.write("a/b/c.sh", "#!/bin/sh\n", { mode: 0o750, mtimeMs: 1_600_000_000_000 });
    expect(await files.stat("a/b/c.sh")).toMatchObject({
      type: "file",
      size: 10,
      mode: 0o750,
      mtime_ms: 1_600_000_000_000,
    });
    await files.mkdir("a/d/e");
    expect((await files.list("a")).map((entry) => [entry.path.split("/").at(-1), entry.type])).toEqual([
      ["b", "dir"],
      ["d", "dir"],
    ]);
    await files.rename("a/b/c.sh", "a/d/c2.sh");
    expect([await files.exists("a/b/c.sh"), await files.exists("a/d/c2.sh")]).toEqual([false, true]);
    const full = await files.remove("a").catch((error: unknown) => error);
    expect(full).toBeInstanceOf(FileError);
    await files.remove("a", { recursive: true });
    await files.remove("a", { missingOk: true });
    const wrong: [() => Promise<unknown>, string][] = [
      [() => files.read("nothing"), "ENOENT"],
      [() => files.remove("nothing"), "ENOENT"],
      [() => files.list("/etc/hostname"), "ENOTDIR"],
      [() => files.read("/etc"), "EISDIR"],
    ];
    for (const [ask, reason] of wrong) {
      expect(await ask().catch((error: unknown) => error)).toMatchObject({
        code: "file_error",
        reason,
      });
    }
  },
  LONG,
);

test(
  "a folder with more entries than one page is listed whole",
  async () => {
    const sandbox = await liveBox();
    await using _ = sandbox.live;
    await sandbox.exec("mkdir many; cd many; seq -f 'f%05g' 1 2345 | xargs touch", { check: true });
    const names = (await sandbox.files.list("many")).map((entry) => entry.path.split("/").at(-1));
    expect(names.length).toBe(2345);
    expect(new Set(names).size).toBe(2345);
  },
  LONG,
);

test(
  "a folder goes up and down whole, with modes and links; a file too",
  async () => {
    const sandbox = await liveBox();
    await using _ = sandbox.live;
    await using folder = await scratch();
    const from = join(folder.path, "from");
    await mkdir(join(from, "sub", "empty"), { recursive: true });
    await writeFile(join(from, "big"), noise(1_500_000));
    await writeFile(join(from, "sub", "run"), "#!/bin/sh\necho ran\n");
    await chmod(join(from, "sub", "run"), 0o755);
    await symlink("sub/run", join(from, "link"));
    await sandbox.files.upload(from, "tree/there");
    expect((await sandbox.exec("tree/there/link")).stdout.text).toBe("ran\n");
    const to = join(folder.path, "to");
    await sandbox.files.download("tree/there", to);
    expect(Buffer.compare(await readFile(join(to, "big")), noise(1_500_000))).toBe(0);
    expect((await stat(join(to, "sub", "run"))).mode & 0o777).toBe(0o755);
    expect((await stat(join(to, "sub", "empty"))).isDirectory()).toBe(true);
    expect(await readlink(join(to, "link"))).toBe("sub/run");

    await sandbox.files.upload(join(from, "sub", "run"), "one");
    expect((await sandbox.exec("./one")).stdout.text).toBe("ran\n");
    await sandbox.files.download("one", join(folder.path, "two"));
    expect((await stat(join(folder.path, "two"))).mode & 0o777).toBe(0o755);
    // Into a folder that is there, as cp does.
    await sandbox.files.download("one", folder.path);
    expect(await readFile(join(folder.path, "one"), "utf8")).toContain("echo ran");
    const missing = await sandbox.files
      .upload(join(folder.path, "none"), "x")
      .catch((error: unknown) => error);
    expect(missing).toMatchObject({ code: "file_error", reason: "ENOENT" });
  },
  LONG,
);

test("times before 1970 and files of several names stay so, there and back", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  await using folder = await scratch();
  const from = join(folder.path, "from");
  await mkdir(from);
  await writeFile(join(from, "a"), "x");
  await link(join(from, "a"), join(from, "b"));
  // As text: a number before 1970 is taken for now.
  await utimes(join(from, "a"), "-86400.25", "-86400.25");
  await utimes(from, "-1.5", "-1.5");
  const { files } = sandbox;
  await files.upload(from, "there");
  await files.upload(join(from, "a"), "one");
  expect((await files.stat("one")).mtime_ms).toBe(-86_400_250);
  await files.download("there", join(folder.path, "back"));
  await files.download("one", join(folder.path, "one"));
  const [a, b] = [await stat(join(folder.path, "back", "a")), await stat(join(folder.path, "back", "b"))];
  expect([a.mtimeMs, a.ino, a.nlink]).toEqual([-86_400_250, b.ino, 2]);
  const own = [join(folder.path, "back"), join(folder.path, "one")].map(
    async (path) => (await stat(path)).mtimeMs,
  );
  expect(await Promise.all(own)).toEqual([-1500, -86_400_250]);
});

test(
  "an aborted upload leaves nothing, half or hidden",
  async () => {
    const sandbox = await liveBox();
    await using _ = sandbox.live;
    await sandbox.files.mkdir("here");
    const control = new AbortController();
    let parts = 0;
    const endless = (async function* () {
      for (;;) {
        parts++;
        yield noise(256 * 1024);
      }
    })();
    const writing = sandbox.files
      .write("here/file", endless, { signal: control.signal })
      .catch((error: unknown) => error);
    await until("it is under way", () => parts > 8);
    control.abort();
    expect(await writing).toBeInstanceOf(CanceledError);
    await until("nothing is left of it", async () => (await sandbox.files.list("here")).length === 0);
  },
  LONG,
);

test(
  "memory stays flat over a large file, both ways",
  async () => {
    const sandbox = await liveBox();
    await using _ = sandbox.live;
    const part = noise(1 << 20);
    const parts = 256;
    // What is held is the question, not how lazy the collector is in a process that has run other tests before.
    let collectedAt = 0;
    const collect = (bytes: number) => {
      if (bytes - collectedAt < 16 << 20) return;
      collectedAt = bytes;
      Bun.gc(true);
    };
    const source = (async function* () {
      for (let i = 0; i < parts; i++) {
        collect(i << 20);
        yield part;
      }
    })();
    Bun.gc(true);
    const before = process.memoryUsage().rss;
    let most = before;
    const look = () => {
      most = Math.max(most, process.memoryUsage().rss);
    };
    await sandbox.files.write("large", source);
    look();
    collectedAt = 0;
    let received = 0;
    for await (const piece of sandbox.files.readStream("large")) {
      received += piece.length;
      collect(received);
      look();
    }
    expect(received).toBe(parts << 20);
    // Half of the file: what a collector does not give back at once is below it, the whole file is above.
    expect(most - before).toBeLessThan(128 * 1024 * 1024);
  },
  LONG,
);

test("a download of a folder that is canceled leaves nothing where nothing was, and tells where it leaves a part", async () => {
  const live = await liveMesh();
  await using _ = live;
  const mesh = await live.connect();
  const sandbox = await mesh.acquire({ image: "host" });
  // Smaller ones first, so that there is something when it is canceled.
  await sandbox.exec(
    "mkdir -p t/z; for i in 1 2 3; do echo $i > t/$i; done; head -c 150000000 /dev/zero > t/z/z",
  );
  await using folder = await scratch();
  const control = new AbortController();
  const anew = sandbox.files.download("t", join(folder.path, "new"), { signal: control.signal });
  anew.catch(() => undefined);
  await until("it has begun", async () => (await readdir(folder.path)).length > 0);
  expect(await readdir(folder.path)).not.toContain("new");
  control.abort();
  await expect(anew).rejects.toBeInstanceOf(CanceledError);
  expect(await readdir(folder.path)).toEqual([]);

  const old = join(folder.path, "old");
  await mkdir(old);
  await writeFile(join(old, "mine"), "");
  const again = new AbortController();
  let told = 0;
  const options = { signal: again.signal, partial: () => told++ };
  const into = sandbox.files.download("t", old, options);
  into.catch(() => undefined);
  await until("it has begun", async () => (await readdir(old)).length > 1);
  again.abort();
  await expect(into).rejects.toBeInstanceOf(CanceledError);
  expect([told, (await readdir(old)).includes("mine")]).toEqual([1, true]);
  // What is in the way holds no part of a copy.
  const inTheWay = sandbox.files.download("t", join(old, "mine"), { partial: () => told++ });
  await expect(inTheWay).rejects.toMatchObject({ code: "file_error", reason: "EEXIST" });
  expect(told).toBe(1);
});

test("a copy of a folder is called partial where a part of it stays, and not where nothing was written", async () => {
  await using sandbox = await liveBox();
  await using folder = await scratch();
  await sandbox.exec("mkdir -p t/b; echo x > t/a; echo x > t/b/c; touch f; mkdir -p in/a on; touch on/b");
  const from = join(folder.path, "from");
  await mkdir(join(from, "b"), { recursive: true });
  for (const name of ["a", "b/c"]) await writeFile(join(from, name), "x");
  const [inHere, onHere] = [join(folder.path, "in"), join(folder.path, "on")];
  await mkdir(join(inHere, "a"), { recursive: true });
  await mkdir(onHere);
  await writeFile(join(onHere, "b"), "in the way");
  const told = async (copy: (partial: () => void) => Promise<void>) => {
    let times = 0;
    await expect(copy(() => times++)).rejects.toBeInstanceOf(FileError);
    return times;
  };
  const { files } = sandbox;
  // What is in the way stands before all else, or behind what was written by then.
  expect(await told((partial) => files.download("t", inHere, { partial }))).toBe(0);
  expect(await told((partial) => files.download("t", onHere, { partial }))).toBe(1);
  expect(await told((partial) => files.upload(from, "in", { partial }))).toBe(0);
  expect(await told((partial) => files.upload(from, "on", { partial }))).toBe(1);
  expect(await told((partial) => files.upload(from, "f", { partial }))).toBe(0);
});

test("a file of the sandbox that becomes shorter while it is read is a FileError that names it, alone and in its folder", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  const { files } = sandbox;
  for (const stream of [files.readStream("d/f"), files.pack("d"), files.pack("d/f")]) {
    // Far more than is sent ahead of its reader.
    await sandbox.exec("mkdir -p d && head -c 32M /dev/zero | tr '\\0' x > d/f");
    const reading = async () => {
      let parts = 0;
      for await (const _ of stream) if (++parts === 1) await sandbox.exec("truncate -s 1000 d/f");
    };
    const failed = await reading().catch((error: unknown) => error);
    expect(failed).toBeInstanceOf(FileError);
    expect(failed).toMatchObject({ reason: "ESTALE", message: expect.stringContaining("d/f: it became") });
  }
});
