// The installer as a program, on a real file system.
import { afterEach, beforeEach, expect, test } from "bun:test";
import { randomBytes } from "node:crypto";
import {
  chmodSync,
  closeSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { until } from "../../../broker/server/testing.ts";
import { compileInstaller, sumsOf } from "../images.ts";

let work: string;
let program: string;
const children: { kill(signal: NodeJS.Signals): void; exited: Promise<number> }[] = [];

beforeEach(() => {
  work = mkdtempSync(join(tmpdir(), "sandmesh-installer-"));
  program = compileInstaller(join(work, "installer"), ["-DLOOK_EVERY_S=1", "-DVERIFY_EVERY=1"]);
});
afterEach(async () => {
  for (const child of children.splice(0)) {
    child.kill("SIGKILL");
    await child.exited;
  }
  rmSync(work, { recursive: true, force: true });
});

/** An image's folder with these files and their sums. */
function image(name: string, files: Record<string, Buffer>): string {
  const folder = join(work, name);
  mkdirSync(folder);
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    writeFileSync(join(folder, path), content);
  }
  const entries = Object.entries(files).map(([path, content]) => ({ name: path, content }));
  writeFileSync(join(folder, "SHA256SUMS"), sumsOf(entries));
  return folder;
}

const target = (): string => join(work, "target");

function start(source: string, version: string, keepS = 3600) {
  const child = Bun.spawn([program, source, target(), version, String(keepS)], { stderr: "pipe" });
  children.push(child);
  return child;
}

const check = (version: string): number =>
  Bun.spawnSync([program, "--check", target(), version]).exitCode ?? -1;
const installed = (version: string): Promise<boolean> =>
  until(`${version} is installed`, () => check(version) === 0);

test("it installs what the sums say, of every length of the last block, with the right to execute", async () => {
  const lengths = [0, 1, 55, 56, 57, 63, 64, 65, 119, 120, 128, 1_000_003];
  const files = Object.fromEntries(lengths.map((length) => [`deep/er/f${length}`, randomBytes(length)]));
  const source = image("image", { ...files, program: Buffer.from("x") });
  chmodSync(join(source, "program"), 0o700);
  start(source, "1.0");
  await installed("1.0");
  for (const [name, content] of Object.entries(files)) {
    expect(readFileSync(join(target(), "1.0", name)).equals(content)).toBe(true);
  }
  expect(statSync(join(target(), "1.0/program")).mode & 0o777).toBe(0o755);
  expect(statSync(join(target(), "1.0/deep/er/f1")).mode & 0o777).toBe(0o644);
  expect(readdirSync(target())).toEqual(["1.0"]);
});

test("an image that is damaged, or names files elsewhere, installs nothing and ends with a failure", async () => {
  const damaged = image("damaged", { a: Buffer.from("1"), b: Buffer.from("2") });
  writeFileSync(join(damaged, "b"), "3");
  const empty = image("empty", {});
  const escaping = image("escaping", { a: Buffer.from("1") });
  for (const name of ["../a", "/etc/passwd", "x/../../a"]) {
    writeFileSync(join(escaping, "SHA256SUMS"), sumsOf([{ name, content: "1" }]));
    expect(await start(escaping, "1.0").exited).toBe(1);
  }
  expect(await start(damaged, "1.0").exited).toBe(1);
  expect(await start(empty, "1.0").exited).toBe(1);
  expect(await start(join(work, "none"), "1.0").exited).toBe(1);
  expect(readdirSync(target())).toEqual([]);
  expect(check("1.0")).toBe(1);
  for (const version of ["../x", ".hidden", "a/b"]) expect(await start(damaged, version).exited).toBe(2);
});

test("an installed version that was damaged is made whole again; who has it open keeps what it had", async () => {
  const source = image("image", { a: Buffer.from("good") });
  start(source, "1.0");
  await installed("1.0");
  const path = join(target(), "1.0/a");
  writeFileSync(path, "evil");
  const held = openSync(path, "r");
  await until("it is whole again", () => readFileSync(path, "utf8") === "good");
  const buffer = Buffer.alloc(4);
  readSync(held, buffer, 0, 4, 0);
  closeSync(held);
  expect(buffer.toString()).toBe("evil");
});

test("a version that is whole is left as it is when the installer starts again", async () => {
  const source = image("image", { a: Buffer.from("1") });
  const first = start(source, "1.0");
  await installed("1.0");
  const { ino } = statSync(join(target(), "1.0"));
  first.kill("SIGTERM");
  expect(await first.exited).toBe(0);
  // It has looked at all when it has removed another folder, whose time is over at once.
  mkdirSync(join(target(), "stale"));
  start(source, "1.0", 0);
  await until("it has looked around", () => !existsSync(join(target(), "stale")));
  expect(statSync(join(target(), "1.0")).ino).toBe(ino);
});

test("an old version stays while a sandbox runs from it, though its time is over, and goes afterwards", async () => {
  const loader = readFileSync("/bin/busybox");
  start(image("one", { "lib/ld-test": loader }), "1.0");
  await installed("1.0");
  for (const child of children.splice(0)) {
    child.kill("SIGTERM");
    await child.exited;
  }
  chmodSync(join(target(), "1.0/lib/ld-test"), 0o755);
  const sandbox = Bun.spawn([join(target(), "1.0/lib/ld-test"), "sleep", "1000"], { argv0: "busybox" });
  children.push(sandbox);
  mkdirSync(join(target(), "0.9"));
  start(image("two", { "lib/ld-test": loader }), "2.0", 0);
  await until("the unused one is gone", () => !existsSync(join(target(), "0.9")));
  await installed("2.0");
  expect(readdirSync(target()).sort()).toEqual(["1.0", "2.0"]);
  sandbox.kill("SIGKILL");
  await sandbox.exited;
  await until("the old one is gone", () => !existsSync(join(target(), "1.0")));
  expect(check("2.0")).toBe(0);
});

test("for an init container it copies once, also over what a first try left", async () => {
  const source = image("image", { "lib/a": Buffer.from("1"), b: Buffer.from("2") });
  mkdirSync(join(work, "volume"));
  copyFileSync(join(source, "b"), join(work, "volume/b"));
  expect(Bun.spawnSync([program, "--copy", source, join(work, "volume")]).exitCode).toBe(0);
  expect(readFileSync(join(work, "volume/lib/a"), "utf8")).toBe("1");
});
