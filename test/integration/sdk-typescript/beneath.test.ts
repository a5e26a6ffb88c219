// Files that do not leave a folder, through the SDK, against a real daemon.
import { expect, test } from "bun:test";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { FileError } from "../../../sdk/typescript/mod.ts";
import { liveBox, scratch } from "./mesh.ts";

test("each call of the files beneath a folder is refused what a link leads out of it to", async () => {
  const box = await liveBox();
  await using _ = box.live;
  await using folder = await scratch();
  const here = folder.path;
  const made = await box.exec(
    "mkdir -p work/sub out/in && echo secret > out/f && echo inside > work/sub/f && ln -s ../out work/up && ln -s sub work/in",
  );
  expect(made.outcome).toEqual({ type: "exited", code: 0 });
  const files = box.files.beneath("work");
  await writeFile(join(here, "f"), "mine");
  const refused: Record<string, () => Promise<unknown>> = {
    read: () => files.read("up/f"),
    readText: () => files.readText("../out/f"),
    readStream: async () => {
      for await (const _ of files.readStream("up/f"));
    },
    write: () => files.write("up/f", "x"),
    append: () => files.write("up/f", "x", { append: true }),
    stat: () => files.stat("up"),
    exists: () => files.exists("up/f"),
    list: () => files.list("up"),
    remove: () => files.remove("up/in", { recursive: true }),
    mkdir: () => files.mkdir("up/new"),
    rename: () => files.rename("sub", "up/sub"),
    pack: async () => {
      for await (const _ of files.pack("up"));
    },
    unpack: () => files.unpack("up", [Buffer.alloc(1024)]),
    sha256: () => files.sha256("up/f"),
    chmod: () => files.chmod("up/f", 0o777),
    chown: () => files.chown("up/in", { uid: 0, follow: false }),
    glob: () => files.glob("**", { folder: "up" }),
    search: () => files.search("secret", "up"),
    watch: async () => {
      for await (const _ of files.watch("up"));
    },
    upload: () => files.upload(join(here, "f"), "up/g"),
    "upload of a folder": () => files.upload(here, "up/g"),
    download: () => files.download("up/f", join(here, "got")),
    "download of a folder": () => files.download("up", join(here, "got")),
  };
  for (const [name, act] of Object.entries(refused)) {
    const error = await act().catch((thrown: unknown) => thrown);
    expect([name, error instanceof FileError && error.reason]).toEqual([name, "EXDEV"]);
  }
  expect((await box.exec("cat out/f; ls out")).stdout.text).toBe("secret\nf\nin\n");
  expect(await files.readText("in/f")).toBe("inside\n");
  expect(await files.write("new/f", "written")).toBe(7);
  await files.download("in", join(here, "got"));
  expect(await readFile(join(here, "got", "f"), "utf8")).toBe("inside\n");
  expect(await files.glob("**/f")).toEqual(["new/f", "sub/f"]);
  expect(await box.files.readText("work/up/f")).toBe("secret\n");
  expect(() => files.beneath("sub")).toThrow("root: ");
}, 60_000);
