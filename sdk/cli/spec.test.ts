import { expect, test } from "bun:test";
import { join } from "node:path";
import { localImage } from "./spec.ts";

test("a relative path is one of the working folder here, not of the pool's; names stay as they are", () => {
  expect(localImage("./rootfs")).toBe(join(process.cwd(), "rootfs"));
  expect(localImage("../a.tar#name")).toBe(join(process.cwd(), "..", "a.tar#name"));
  expect(localImage(".")).toBe(process.cwd());
  for (const name of ["host", "debian:bookworm", "/rootfs", "a.b/c"]) expect(localImage(name)).toBe(name);
});
