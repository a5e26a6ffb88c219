import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { realPath } from "./real-path.ts";

let folder: string;
beforeAll(() => {
  folder = realpathSync(mkdtempSync(join(tmpdir(), "sandmesh-real-")));
  mkdirSync(join(folder, "a", "b"), { recursive: true });
  symlinkSync(join(folder, "a", "b"), join(folder, "absolute"));
  symlinkSync("a/b", join(folder, "relative"));
  symlinkSync("later/home", join(folder, "dangling"));
  symlinkSync("loop", join(folder, "loop"));
});
afterAll(() => rmSync(folder, { recursive: true }));

test.each([
  ["absolute", "a/b"],
  ["relative/new/home", "a/b/new/home"],
  ["relative/../x", "a/x"],
  ["dangling/x", "later/home/x"],
  ["a/./b//", "a/b"],
  ["none/../a", "a"],
  // Whoever opens it is told.
  ["loop/x", "loop/x"],
])("%s leads to %s, as the kernel would walk it", (given, real) => {
  expect(realPath(`${folder}/${given}`)).toBe(join(folder, real));
});

test("a relative path begins at the working folder", () => {
  expect(realPath("none/x")).toBe(join(process.cwd(), "none/x"));
  expect(realPath("/")).toBe("/");
});
