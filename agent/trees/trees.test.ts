import { describe, expect, test } from "bun:test";
import { once } from "node:events";
import { chmodSync, readFileSync, statSync, symlinkSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { CanceledError } from "../../broker/contract/index.ts";
import { until } from "../exec/testing.ts";
import { createFiles } from "../files/files.ts";
import { codeOf, never, onTrees } from "./testing.ts";

const own = onTrees();
const glob = async (pattern: string, more: object = {}): Promise<string[]> =>
  (await own.trees.glob({ signal: never, path: ".", pattern, hidden: false, limit: 1000, ...more })).paths;
const search = (text: string, more: object = {}) =>
  own.trees.search({
    signal: never,
    path: ".",
    text,
    ignoreCase: false,
    hidden: false,
    limit: 1000,
    ...more,
  });

/** openat(2), on x64 and arm64. */
const waitsInOpen = (pid: number): boolean =>
  /^(257|56) /.test(readFileSync(`/proc/${pid}/syscall`, "latin1")) &&
  readFileSync(`/proc/${pid}/stat`, "latin1").includes(") S ");

describe("hash and attributes", () => {
  test("the hash is of the bytes that are there, over more than one part; a folder and a device have none", async () => {
    const content = Buffer.alloc(3_000_001, "0123456789");
    own.put("f", content);
    const sha256 = new Bun.CryptoHasher("sha256").update(content).digest("hex");
    expect(await own.trees.hash("f", never)).toEqual({ sha256, size: content.length });
    expect(await codeOf(own.trees.hash("/dev/zero", never))).toBe("EINVAL");
    expect(await codeOf(own.trees.hash(".", never))).toMatch(/EINVAL|EISDIR/);
    expect(await codeOf(own.trees.hash("nothing", never))).toBe("ENOENT");
  });

  test("a fifo and a socket have no hash, at once, and the fifo's writer goes on waiting for its reader", async () => {
    const fifo = join(own.root, "fifo");
    Bun.spawnSync(["mkfifo", fifo]);
    const writer = Bun.spawn(["sh", "-c", `echo kept > ${fifo}`]);
    await until("it waits for a reader", () => waitsInOpen(writer.pid));
    const files = createFiles({ cwd: own.root });
    expect(await codeOf(own.trees.hash("fifo", never))).toBe("EINVAL");
    expect(await codeOf(files.read({ path: "fifo", offset: 0 }))).toBe("EINVAL");
    expect(await codeOf(search("x", { path: "fifo" }))).toBe("EINVAL");
    expect(waitsInOpen(writer.pid)).toBe(true);
    expect(await new Response(Bun.spawn(["cat", fifo]).stdout).text()).toBe("kept\n");
    const server = createServer().listen(join(own.root, "socket"));
    await once(server, "listening");
    expect(await codeOf(own.trees.hash("socket", never))).toBe("EINVAL");
    server.close();
  });

  test("mode and time are set as given, also the set-uid bit beside a new owner", async () => {
    own.put("f");
    await own.trees.setAttributes({
      path: "f",
      mode: 0o4711,
      mtimeMs: 1_000_500,
      gid: process.getgid?.() ?? 0,
      follow: true,
    });
    const { mode, mtimeMs } = statSync(join(own.root, "f"));
    expect([mode & 0o7777, mtimeMs]).toEqual([0o4711, 1_000_500]);
    // Before 1970.
    await own.trees.setAttributes({ path: "f", mtimeMs: -1250, follow: true });
    expect(statSync(join(own.root, "f")).mtimeMs).toBe(-1250);
  });

  test("with follow false what a link leads to stays as it is", async () => {
    own.put("f");
    chmodSync(join(own.root, "f"), 0o600);
    symlinkSync("f", join(own.root, "link"));
    const before = statSync(join(own.root, "f")).mtimeMs;
    await own.trees.setAttributes({ path: "link", mtimeMs: 5000, follow: false });
    expect(statSync(join(own.root, "f")).mtimeMs).toBe(before);
    expect(await codeOf(own.trees.setAttributes({ path: "link", mode: 0o777, follow: false }))).toBe(
      "EOPNOTSUPP",
    );
  });
});

describe("glob", () => {
  test("patterns mean what they mean in a shell, and dot names only where asked for", async () => {
    for (const path of ["a.py", "b.ts", "src/c.py", "src/deep/d.py", "src/.hidden/e.py", ".f.py"])
      own.put(path);
    expect(await glob("*.py")).toEqual(["a.py"]);
    expect(await glob("**/*.py")).toEqual(["a.py", "src/c.py", "src/deep/d.py"]);
    expect(await glob("*.{py,ts}")).toEqual(["a.py", "b.ts"]);
    expect(await glob("src/?.py")).toEqual(["src/c.py"]);
    expect(await glob("**/*.py", { hidden: true })).toContain("src/.hidden/e.py");
    expect(
      await codeOf(own.trees.glob({ signal: never, path: "nothing", pattern: "*", hidden: false, limit: 1 })),
    ).toBe("ENOENT");
  });

  test("in pages each path comes once, wherever a page ends", async () => {
    for (const path of ["a/b/c", "a/b-c", "a.b", "ab", "b/a", "b/b/x", "c"]) own.put(path);
    const whole = await glob("**");
    expect(whole.length).toBe(11);
    for (let limit = 1; limit < 5; limit++) {
      const paged: string[] = [];
      for (let more = true; more; ) {
        const after = paged.at(-1);
        const page = await own.trees.glob({
          signal: never,
          path: ".",
          pattern: "**",
          hidden: false,
          limit,
          ...(after === undefined ? {} : { after }),
        });
        paged.push(...page.paths);
        more = page.more;
      }
      expect(paged).toEqual(whole);
    }
  });

  test("what finds nothing in its time says where to go on, and so each path comes once", async () => {
    for (const path of ["a/b/c", "a/b-c", "a.b", "ab", "b/a", "b/b/x", "c"]) own.put(path);
    own.renew({ lookMs: 0 });
    const request = { signal: never, path: ".", hidden: false, limit: 1000 };
    for (const [pattern, found] of [
      ["**/x", ["b/b/x"]],
      ["*", ["a", "a.b", "ab", "b", "c"]],
      ["none", []],
      ["b/**", ["b/a", "b/b", "b/b/x"]],
    ] as const) {
      const paths: string[] = [];
      let page = await own.trees.glob({ ...request, pattern, cursor: "" });
      for (; page.more; page = await own.trees.glob({ ...request, pattern, cursor: page.cursor as string })) {
        expect(page.paths.length).toBeLessThan(2);
        paths.push(...page.paths);
      }
      expect([pattern, paths]).toEqual([pattern, [...found]]);
    }
    // Who goes on by paths alone would take a page without one for the end.
    const { paths, more } = await own.trees.glob({ ...request, pattern: "**/x" });
    expect([paths, more]).toEqual([["b/b/x"], true]);
  });

  test("a search in files of which none matches ends in its time, too, and says that there may be more", async () => {
    for (const path of ["a/b/c", "a/b-c", "c"]) own.put(path, "needle");
    own.renew({ lookMs: 0 });
    expect(await search("needle", { files: "**/*.none" })).toEqual({ matches: [], more: true });
  });

  test("beside a pattern's folders, and below its depth, nothing is looked at", async () => {
    for (const path of ["a/b/c", "a/e", "d/e/f"]) own.put(path);
    own.renew({ lookMs: 0 });
    const asked = { signal: never, path: ".", hidden: false, limit: 1000 };
    for (const [pattern, looked] of [
      ["a/*", ["a", "a/b", "a/e", "d"]],
      ["none", ["a", "d"]],
      ["d/**", ["a", "d", "d/e", "d/e/f"]],
    ] as const) {
      const cursors: string[] = [];
      for (let cursor: string | undefined = ""; cursor !== undefined; ) {
        if (cursor !== "") cursors.push(cursor);
        cursor = (await own.trees.glob({ ...asked, pattern, cursor })).cursor;
      }
      expect([pattern, cursors]).toEqual([pattern, [...looked]]);
    }
  });

  test("a symlink to a folder above makes no endless tree, and is told", async () => {
    own.put("d/f");
    symlinkSync("..", join(own.root, "d/up"));
    expect(await glob("**")).toEqual(["d", "d/f", "d/up"]);
  });

  test("other file systems below are not entered: / has an end", async () => {
    expect(await glob("pts/*", { path: "/dev" })).toEqual([]);
    expect(await glob("ptmx", { path: "/dev/pts" })).toEqual(["ptmx"]);
  });
});

describe("search", () => {
  test("tells path, line and text, across parts of a large file, and its last line without an end", async () => {
    const filler = "nothing here\n".repeat(60_000);
    own.put("big", `${filler}needle one\n${filler}a needle`);
    own.put("sub/small.txt", "x\nneedle\r\n");
    expect((await search("needle")).matches).toEqual([
      { path: "big", line: 60_001, text: "needle one" },
      { path: "big", line: 120_002, text: "a needle" },
      { path: "sub/small.txt", line: 2, text: "needle\r" },
    ]);
    expect((await search("NEEDLE", { ignoreCase: true, files: "**/*.txt" })).matches.length).toBe(1);
    expect((await search("NEEDLE")).matches).toEqual([]);
    expect((await search("needle", { path: "sub/small.txt" })).matches).toEqual([
      { path: "", line: 2, text: "needle\r" },
    ]);
  });

  test("the text is a text, not a pattern", async () => {
    own.put("f", "a.c\nabc\n(((\n");
    expect((await search("a.c")).matches.map(({ line }) => line)).toEqual([1]);
    expect((await search("(((")).matches.map(({ line }) => line)).toEqual([3]);
  });

  test("binary files, pipes and unreadable files do not stop it", async () => {
    own.put("binary", Buffer.from("needle\0needle"));
    Bun.spawnSync(["mkfifo", join(own.root, "pipe")]);
    symlinkSync("/dev/zero", join(own.root, "zero"));
    own.put("text", "needle");
    expect((await search("needle")).matches.map(({ path }) => path)).toEqual(["text"]);
  });

  test("what is named is looked into behind a symlink too, and refused where it is no file", async () => {
    own.put("text", "needle");
    symlinkSync("text", join(own.root, "link"));
    expect((await search("needle", { path: "link" })).matches).toEqual([
      { path: "", line: 1, text: "needle" },
    ]);
    expect(await codeOf(search("needle", { path: "/dev/zero" }))).toBe("EINVAL");
  });

  test("the limit ends it and is told; a long line is shown around its match", async () => {
    own.put("f", "needle\n".repeat(10));
    expect(await search("needle", { limit: 10 })).toMatchObject({ more: false });
    const { matches, more } = await search("needle", { limit: 9 });
    expect([matches.length, more]).toEqual([9, true]);
    own.put("long", `${"x".repeat(1_500_000)}needle${"y".repeat(100_000)}`);
    const [match] = (await search("needley", { path: "long" })).matches;
    expect(match?.text.length).toBe(500);
    expect(match?.text).toContain("needley");
  });
});

describe("who takes it back", () => {
  const abort = new AbortController();
  const canceled = (work: Promise<unknown>) => {
    abort.abort(new CanceledError("taken back"));
    return codeOf(work);
  };

  test("is not waited for by a hash, a glob or a search of what has no end", async () => {
    // 8 TiB almost without a block, which begin as text: read to its end it takes an hour.
    own.put("endless", "text\n".repeat(2000));
    Bun.spawnSync(["truncate", "-s", "8T", join(own.root, "endless")]);
    const { signal } = abort;
    const working = [
      own.trees.hash("endless", signal),
      own.trees.search({ path: "endless", text: "none", ignoreCase: false, hidden: false, limit: 1, signal }),
      own.trees.glob({ path: "/", pattern: "**/none", hidden: true, limit: 1, signal }),
    ];
    await Bun.sleep(0);
    expect(await Promise.all(working.map(canceled))).toEqual(["canceled", "canceled", "canceled"]);
  });
});
