import { expect, test } from "bun:test";
import { landing, remoteOf } from "./cp.ts";

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

test("what looks like a sandbox's is one, so that a wrong id is told and not taken for a file", () => {
  expect(remoteOf("nosuch:/a")).toEqual({ id: "nosuch", path: "/a" });
  expect(remoteOf("sb-7k2m9q4xw1vzt:")).toEqual({ id: "sb-7k2m9q4xw1vzt", path: "" });
  for (const local of ["./a:b", "/a:b", "C:x", "c:x", "a/b:c", "plain"])
    expect(remoteOf(local)).toBeUndefined();
});
