import { expect, test } from "bun:test";
import { scopeOf } from "./scope.ts";

const PATTERNS = [
  "*",
  "etc",
  "a/*.py",
  "a/b/c",
  "a/**",
  "**/c",
  "a/{b,c/d}/e",
  "{a/b,c}",
  "a[!x]b",
  "a/[!x]/b",
  "!a",
  "!a/b",
  "a\\/b",
  "+(a/)b",
  "@(a|b/a)/c",
  "./a",
  "a//b",
  "a/./b",
  "a/../b",
  "/a",
  "a/",
  "?/?",
  "a/*/c",
  "[a-c]/b",
  "a**/b",
  "*/**/c",
  "a/b",
  "..",
];

test("no folder is left out in which a pattern matches something", () => {
  const names = ["a", "b", "c", "d", "x", "e", "etc", "..."];
  let paths = [""];
  const all: string[] = [];
  for (let depth = 0; depth < 4; depth++) {
    paths = paths.flatMap((path) => names.map((name) => (path === "" ? name : `${path}/${name}`)));
    all.push(...paths);
  }
  for (const pattern of PATTERNS) {
    const glob = new Bun.Glob(pattern);
    const enters = scopeOf(pattern);
    for (const path of all.filter((each) => glob.match(each))) {
      const folders = path.split("/").slice(0, -1);
      expect([pattern, path, folders.every(enters)]).toEqual([pattern, path, true]);
    }
  }
});

test.each([
  ["etc", [["etc", 0]]],
  ["*.py", [["a", 0]]],
  [
    "a/*.py",
    [
      ["b", 0],
      ["b", 1],
    ],
  ],
  [
    "a/b/**",
    [
      ["b", 0],
      ["a", 1],
    ],
  ],
] as const)("beside and below %s no folder is read", (pattern, folders) => {
  const enters = scopeOf(pattern);
  expect(folders.filter(([name, depth]) => enters(name, depth))).toEqual([]);
});
