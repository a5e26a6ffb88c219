// Which paths of a tree may lead to a file system that does not answer, or tells nothing.
import { expect, test } from "bun:test";
import { Mounted } from "./mounted.ts";

const mount = (at: string, type: string) => ({ at, type, mayWait: type === "nfs4" });

test("a share that is mounted beside or below a tree makes no other path of it wait", () => {
  const mounted = new Mounted("/work", [mount("/work/data", "nfs4"), mount("/home", "nfs4")]);
  expect(mounted.mayWait).toBe(true);
  expect(["data", "data/a/b"].map((path) => mounted.mayWaitAt(path))).toEqual([true, true]);
  expect(["", "dat", "data2", "sub/data"].map((path) => mounted.mayWaitAt(path))).toEqual(
    Array(4).fill(false),
  );
});

test("below a share all of a tree may wait, and a share at the tree's own folder is one above all", () => {
  for (const at of ["/work", "/work/data"])
    expect(new Mounted("/work/data", [mount(at, "nfs4")]).mayWaitAt("a")).toBe(true);
  expect(new Mounted("", [mount("/data", "nfs4")]).mayWaitAt("data/a")).toBe(true);
});

test("of file systems that tell nothing only those in the tree are left out, at their very path", () => {
  const mounted = new Mounted("/work", [mount("/work/proc", "proc"), mount("/sys", "sysfs")]);
  expect(["proc", "proc2", "sys"].map((path) => mounted.isUntold(path))).toEqual([true, false, false]);
  expect(new Mounted("", [mount("/proc", "proc")]).isUntold("proc")).toBe(true);
});
