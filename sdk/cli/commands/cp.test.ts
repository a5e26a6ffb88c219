import { expect, test } from "bun:test";
import { landing } from "./cp.ts";

test.each([
  ["project", "/work", false, "/work"],
  ["project", "/work", true, "/work/project"],
  ["a/project/", "/work/", true, "/work/project"],
  ["a/project/.", "/work", true, "/work"],
  [".", "/work", true, "/work"],
  ["..", "/work", true, "/work"],
  ["/", "/work", true, "/work"],
  ["note.txt", "/new/", false, "/new/note.txt"],
  ["note.txt", "/", true, "/note.txt"],
  ["note.txt", ".", true, "./note.txt"],
])("what cp(1) would name %s copied to %s (a folder: %p) is %s", (from, to, isFolder, lands) => {
  expect(landing(from, to, isFolder)).toBe(lands);
});
