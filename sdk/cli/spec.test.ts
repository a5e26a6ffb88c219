import { expect, test } from "bun:test";
import { join } from "node:path";
import { ImageError } from "../typescript/mod.ts";
import { collectVolume, localImage, namingImage } from "./spec.ts";

test("a relative path is one of the working folder here, not of the pool's; names stay as they are", () => {
  expect(localImage("./rootfs")).toBe(join(process.cwd(), "rootfs"));
  expect(localImage("../a.tar#name")).toBe(join(process.cwd(), "..", "a.tar#name"));
  expect(localImage(".")).toBe(process.cwd());
  for (const name of ["host", "debian:bookworm", "/rootfs", "a.b/c"]) expect(localImage(name)).toBe(name);
});

test("a volume is mounted where its last colon says; a relative source is of the working folder here", () => {
  const first = collectVolume("./set:/mnt/set");
  expect(first).toEqual([{ name: "data-0", source: join(process.cwd(), "set"), mountPath: "/mnt/set" }]);
  const [, second] = collectVolume("claim:models:/models", first);
  expect(second).toEqual({ name: "data-1", source: "claim:models", mountPath: "/models" });
  for (const wrong of ["", "/a", ":/a", "/a:", "/a:b"])
    expect(() => collectVolume(wrong)).toThrow("SOURCE:PATH");
});

test("an image that is none is told how it is written, where a file here has its name", async () => {
  const refused = () => Promise.reject(new ImageError("no such image", { field: "spec.image" }));
  await expect(namingImage("package.json", refused())).rejects.toMatchObject({
    code: "image_error",
    field: "spec.image",
    message: "no such image The package.json of this folder is ./package.json.",
  });
  for (const other of ["nosuch", "./package.json", join(process.cwd(), "package.json")])
    await expect(namingImage(other, refused())).rejects.toThrow(/^no such image$/);
});
