import { afterEach, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import {
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Files, Trees } from "../../broker/endpoint/executor.ts";
import { testEngine } from "../exec/testing.ts";
import type { Engine } from "../native/engine.ts";
import { createTrees } from "../trees/trees.ts";
import { createFiles } from "./files.ts";
import { drafts, drain, fill, kept, openBelow, reasonOf, written } from "./testing.ts";

const never = new AbortController().signal;
let engine: Engine;
let base: string;
/** What no path may lead to. */
let out: string;
let root: string;

beforeAll(async () => {
  engine = await testEngine();
});
beforeEach(() => {
  base = mkdtempSync(join(tmpdir(), "root-test-"));
  out = join(base, "out");
  root = join(base, "root");
  mkdirSync(join(out, "folder"), { recursive: true });
  writeFileSync(join(out, "secret"), "secret");
  writeFileSync(join(out, "folder/secret"), "secret");
  mkdirSync(join(root, "sub/deep"), { recursive: true });
  writeFileSync(join(root, "f"), "inside");
  writeFileSync(join(root, "sub/g"), "below");
});
afterEach(() => {
  rmSync(base, { recursive: true, force: true });
});

const ways = [
  ["by openat2", () => engine.folders],
  ["component by component", () => undefined],
] as const;

/** Everything that resolves a path, by its name: of a file or folder that is there. */
function operations(files: Files, trees: Trees): Record<string, (path: string) => Promise<unknown>> {
  const write = (more: object) => async (path: string) =>
    await fill(await files.write({ ...written, ...more, path }), Buffer.from("x"));
  return {
    read: async (path) => await drain(await files.read({ path, offset: 0 })),
    write: write({}),
    "write without parents": write({ parents: false }),
    append: write({ append: true }),
    stat: (path) => files.stat(path, true),
    list: (path) => files.list(path, undefined, 10, kept),
    mkdir: (path) => files.mkdir(`${path}/new`, 0o700, true),
    "mkdir of one": (path) => files.mkdir(`${path}/new`, undefined, false),
    "remove below": (path) => files.remove(`${path}/folder`, true, false, never),
    "rename from": (path) => files.rename(`${path}/folder`, "renamed"),
    "rename to": (path) => files.rename("sub", `${path}/folder/sub`),
    "stat of an entry": (path) => files.stat(`${path}/folder`, false),
    pack: async (path) => await drain(await files.pack(path)),
    unpack: async (path) => await (await files.unpack(path, false)).abort(),
    hash: (path) => trees.hash(path, never),
    chmod: (path) => trees.setAttributes({ path, mode: 0o700, follow: true }),
    "chown of a link": (path) =>
      trees.setAttributes({ path: `${path}/folder`, uid: 0, gid: 0, follow: false }),
    glob: (path) => trees.glob({ path, pattern: "**", hidden: true, limit: 10, signal: never }),
    search: (path) =>
      trees.search({ path, text: "secret", ignoreCase: false, hidden: true, limit: 10, signal: never }),
    watch: (path) => trees.watch({ path, recursive: true, signal: never }),
  };
}

describe.each(ways)("beneath a root, %s,", (_name, folders) => {
  let files: Files;
  let trees: Trees;
  beforeEach(() => {
    const native = folders();
    files = createFiles({ cwd: base, ...(native && { folders: native }) }).beneath("root");
    trees = createTrees({ cwd: base, engine, beneath: native ?? "walk" }).beneath(root);
  });
  afterEach(() => trees.close());

  test("nothing is read, written, told or removed by a path that leads out", async () => {
    symlinkSync("../out", join(root, "up"));
    symlinkSync(out, join(root, "absolute"));
    symlinkSync("up", join(root, "chain"));
    symlinkSync("../../out", join(root, "sub/up"));
    symlinkSync("../root/../out", join(root, "around"));
    symlinkSync("/proc/self/root", join(root, "magic"));
    const before = () => [readdirSync(out, { recursive: true }).sort(), statSync(out).mode];
    const was = before();
    for (const [name, act] of Object.entries(operations(files, trees)))
      for (const path of [
        "up",
        "absolute",
        "chain",
        "sub/up",
        "around",
        "..",
        "../out",
        "sub/../../out",
        out,
        "magic",
      ])
        expect([name, path, await reasonOf(act(path))]).toEqual([name, path, "EXDEV"]);
    expect(before()).toEqual(was);
    expect(readdirSync(root).sort()).toEqual(["absolute", "around", "chain", "f", "magic", "sub", "up"]);
    expect(openBelow(base)).toEqual([]);
  });

  test("a file that a link leads to outside is neither read nor written, nor made where it is not there", async () => {
    symlinkSync("../out/secret", join(root, "link"));
    symlinkSync("../out/later", join(root, "dangling"));
    symlinkSync(join(out, "later"), join(root, "sub/dangling"));
    const acts = operations(files, trees);
    for (const name of ["read", "write", "append", "stat", "hash", "chmod", "search", "watch", "pack"])
      expect([name, await reasonOf(acts[name]?.("link") ?? Promise.resolve())]).toEqual([name, "EXDEV"]);
    for (const path of ["dangling", "sub/dangling"]) {
      expect(await reasonOf(acts.write?.(path) ?? Promise.resolve())).toBe("EXDEV");
      expect(await reasonOf(files.mkdir(path, undefined, true))).toBe("EXDEV");
      expect(await reasonOf(files.unpack(path, false))).toBe("EXDEV");
    }
    expect(readFileSync(join(out, "secret"), "utf8")).toBe("secret");
    expect(readdirSync(out).sort()).toEqual(["folder", "secret"]);
    // The link itself stands in the root.
    expect(await files.stat("link", false)).toMatchObject({ type: "symlink", target: "../out/secret" });
    await files.rename("link", "sub/moved");
    await files.remove("sub/moved", false, false, never);
    expect(readFileSync(join(out, "secret"), "utf8")).toBe("secret");
  });

  test("links and '..' that stay in the root mean what they mean without one", async () => {
    symlinkSync("sub", join(root, "in"));
    symlinkSync("../f", join(root, "sub/back"));
    symlinkSync("later", join(root, "sub/dangling"));
    symlinkSync("loop", join(root, "loop"));
    const read = async (path: string) => (await drain(await files.read({ path, offset: 0 }))).toString();
    expect(await read("in/g")).toBe("below");
    expect(await read("in/back")).toBe("inside");
    expect(await read("./sub//deep/../../f")).toBe("inside");
    expect(await reasonOf(files.stat("loop", true))).toBe("ELOOP");
    rmSync(join(root, "loop"));
    expect(await reasonOf(files.stat("f/x", true))).toBe("ENOTDIR");
    expect(await reasonOf(files.stat("no", true))).toBe("ENOENT");
    expect(await reasonOf(files.stat("f/", true))).toBe("ENOTDIR");
    expect(await files.stat("in/", false)).toMatchObject({ type: "dir", path: "in/" });
    expect(await files.stat(".", false)).toMatchObject({ type: "dir" });
    await fill(await files.write({ ...written, path: "in/back" }), Buffer.from("written"));
    expect(readFileSync(join(root, "f"), "utf8")).toBe("written");
    expect(readlinkSync(join(root, "sub/back"))).toBe("../f");
    await fill(await files.write({ ...written, path: "in/dangling", fsync: true }), Buffer.from("made"));
    await fill(await files.write({ ...written, path: "in/dangling", append: true }), Buffer.from(" more"));
    expect(readFileSync(join(root, "sub/later"), "utf8")).toBe("made more");
    await fill(await files.write({ ...written, path: "in/a/b/c" }), Buffer.from("x"));
    await files.mkdir("in/m/n", 0o2750, true);
    await files.mkdir("in/m/n", 0o700, true);
    expect(statSync(join(root, "sub/m/n")).mode & 0o7777).toBe(0o2750);
    expect(await reasonOf(files.mkdir("f/x", undefined, true))).toBe("ENOTDIR");
    expect(await reasonOf(files.mkdir("f", undefined, true))).toBe("EEXIST");
    expect(await reasonOf(files.mkdir("sub", undefined, false))).toBe("EEXIST");
    expect(await reasonOf(files.write({ ...written, path: "f/x" }))).toBe("ENOTDIR");
    expect(await reasonOf(files.write({ ...written, path: "sub" }))).toBe("EISDIR");
    await files.rename("in/a/b/c", "in/m/c");
    await files.remove("in/a", true, false, never);
    await files.remove("in/a/b", true, true, never);
    expect(readdirSync(join(root, "sub")).sort()).toEqual(["back", "dangling", "deep", "g", "later", "m"]);
    expect((await files.list("in", undefined, 2, kept)).entries.map(({ path }) => path)).toEqual([
      "back",
      "dangling",
    ]);
    expect(await trees.hash("in/g", never)).toMatchObject({ size: 5 });
    const asked = { path: ".", hidden: true, limit: 100, signal: never };
    const { paths } = await trees.glob({ ...asked, pattern: "**" });
    expect(paths).toContain("sub/m/c");
    expect(paths).not.toContain("in/g");
    const found = await trees.search({ ...asked, text: "below", ignoreCase: false });
    expect(found.matches).toEqual([{ path: "sub/g", line: 1, text: "below" }]);
    expect(drafts(root)).toEqual([]);
    expect(openBelow(base)).toEqual([]);
  });

  test("a path names a place below the root, and its errors name what was asked for", async () => {
    const told = async (act: Promise<unknown>): Promise<string> =>
      await act.then(
        () => "nothing was thrown",
        (error: Error) => error.message,
      );
    expect(await told(files.read({ path: "sub", offset: 0 }))).toStartWith("cannot read sub: it is a folder");
    expect(await told(files.stat("../out", true))).toStartWith("../out leads out of the root root");
    expect(await told(trees.hash("sub", never))).toStartWith("cannot hash sub: it is a folder");
    const nowhere = createFiles({ cwd: base }).beneath("nowhere");
    expect(await told(nowhere.stat("f", true))).toStartWith("cannot open the root nowhere: no such file");
    for (const path of [".", "sub/..", "sub/."])
      expect(await reasonOf(files.remove(path, true, false, never))).toBe("EINVAL");
    expect(await reasonOf(files.rename("sub/..", "x"))).toBe("EINVAL");
    expect(lstatSync(root).isDirectory()).toBe(true);
    expect(await reasonOf(files.beneath("..").stat("out", true))).toBe("EXDEV");
    expect(await files.beneath("sub").stat("g", true)).toMatchObject({ size: 5 });
  });

  test("a watch tells what changes in the root, and nothing of what a link leads to", async () => {
    symlinkSync("../out", join(root, "sub/up"));
    let { cursor } = await trees.watch({ path: "sub", recursive: true, signal: never });
    writeFileSync(join(out, "told"), "");
    mkdirSync(join(root, "sub/new"));
    const seen = new Set<string>();
    const until = async (path: string): Promise<void> => {
      while (!seen.has(path)) {
        const answer = await trees.changes({ path: "sub", cursor, waitMs: 10_000 });
        if (answer.cursor === cursor) throw new Error(`only ${[...seen].join(" ")} came`);
        for (const change of answer.changes) seen.add(change.path);
        cursor = answer.cursor;
      }
    };
    await until("new");
    writeFileSync(join(root, "sub/new/f"), "");
    await until("new/f");
    expect([...seen].filter((path) => path.includes("told"))).toEqual([]);
  });

  test("a folder that is swapped for a link all the while leads nobody out", async () => {
    const secret = "the secret outside";
    for (const path of ["a", "folder/a", "x/y"]) {
      mkdirSync(join(out, path, ".."), { recursive: true });
      writeFileSync(join(out, path), secret);
    }
    mkdirSync(join(root, "d/folder"), { recursive: true });
    for (const path of ["a", "folder/a"]) writeFileSync(join(root, "d", path), "inside");
    symlinkSync("../out", join(root, "l"));
    const before = (): string[] => readdirSync(out, { recursive: true, encoding: "utf8" }).sort();
    const was = before();
    const swapping = Bun.spawn(["python3", join(import.meta.dir, "swap.fixture.py"), root, "d", "l"], {
      stdin: "pipe",
      stdout: "pipe",
    });
    try {
      const output = swapping.stdout.getReader();
      expect(Buffer.from((await output.read()).value ?? []).toString()).toStartWith("ready");
      const asked = { path: ".", hidden: true, limit: 100, signal: never };
      const acts: (() => Promise<unknown>)[] = [
        async () => (await drain(await files.read({ path: "d/a", offset: 0 }))).toString(),
        async () => (await drain(await files.pack("d"))).toString(),
        async () => await files.list("d", undefined, 10, kept),
        async () => await trees.hash("d/a", never),
        async () => await trees.search({ ...asked, text: "outside", ignoreCase: false }),
        async () => await trees.glob({ ...asked, pattern: "**/y" }),
        async () => await fill(await files.write({ ...written, path: "d/w/v" }), Buffer.from("w")),
        async () =>
          await fill(await files.write({ ...written, path: "d/a", append: true }), Buffer.from("w")),
        async () => await files.mkdir("d/m/n", 0o700, true),
        async () => await files.rename("d/folder", "kept"),
        async () => await files.rename("kept", "d/folder"),
        async () => await files.remove("d/x", true, true, never),
        async () => await trees.setAttributes({ path: "d/a", mode: 0o777, follow: true }),
        async () => await (await files.unpack("d/u", false)).finish().catch(() => {}),
      ];
      const told: string[] = [];
      let through = 0;
      for (let round = 0; round < 150; round++)
        for (const act of acts) {
          const answer = await act().then(
            (value) => {
              through++;
              return JSON.stringify(value ?? "");
            },
            (error: { reason?: string }) => error.reason ?? String(error),
          );
          if (/the secret|"y"|x\/y|EIO/.test(answer)) told.push(answer);
        }
      expect(told).toEqual([]);
      expect(before()).toEqual(was);
      expect(
        was
          .filter((path) => path.endsWith("/a") || path === "a")
          .map((path) => readFileSync(join(out, path), "utf8")),
      ).toEqual([secret, secret]);
      expect(statSync(join(out, "a")).mode & 0o777).not.toBe(0o777);
      // Both were met: some went through, and some were refused.
      expect(through).toBeGreaterThan(0);
      expect(through).toBeLessThan(150 * acts.length);
    } finally {
      swapping.stdin.end();
      swapping.kill();
      await swapping.exited;
    }
    expect(existsSync(join(out, "w"))).toBe(false);
    expect(openBelow(base)).toEqual([]);
  }, 60_000);
});
