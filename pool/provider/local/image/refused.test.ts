// Images as files: a hostile or broken one does no harm, and where it is refused is told what is wrong with it.
import { afterEach, beforeEach, describe, expect, setDefaultTimeout, test } from "bun:test";
import { appendFile, mkdir, readdir, rm, symlink, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import {
  busyboxEntries,
  type Entry,
  makeBusyboxRoot,
  makeDockerArchive,
  makeOciLayout,
} from "../../../../test/images/images.ts";
import { Bench } from "../testing.ts";

setDefaultTimeout(60_000);

describe.if(process.getuid?.() === 0)("hostile and broken images", () => {
  let bench: Bench;
  let base: Entry[];
  const at = (name: string) => join(bench.folder, name);
  const layersOnDisk = async () => (await readdir(join(bench.stateDir, "layers"))).sort();
  const refusal = (image: string) =>
    bench.create("sb-refused", { image }).then(
      () => ({ code: "none", message: "" }),
      (error: { code: string; message: string }) => error,
    );

  beforeEach(async () => {
    bench = await Bench.make();
    base = await busyboxEntries();
  });
  afterEach(async () => {
    await bench[Symbol.asyncDispose]();
  });

  const hostile: [string, Entry[]][] = [
    ["a name with ..", [{ name: "../escaped", content: "x" }]],
    ["a name with .. within", [{ name: "a/../../escaped", content: "x" }]],
    [
      "a hard link to the machine's file",
      [{ name: "leak", type: "link", linkname: "../../../../../etc/shadow" }],
    ],
    ["a whiteout with ..", [{ name: "a/.wh..." }]],
  ];
  for (const [what, entries] of hostile) {
    test(`a layer with ${what} is refused, and leaves nothing`, async () => {
      await makeOciLayout(at("oci"), { layers: [[...base, ...entries]] });
      const { code, message } = await refusal(at("oci"));
      expect(code).toBe("image_error");
      expect(message).toContain("leads out");
      expect(await layersOnDisk()).toEqual([]);
      for (const place of [bench.stateDir, join(bench.stateDir, "layers"), "/var/tmp", bench.folder]) {
        expect(await readdir(place)).not.toContain("escaped");
      }
    });
  }

  test("what goes through a symbolic link of a layer's, or links through one, lands inside", async () => {
    const links: Entry[] = [
      { name: "out", type: "symlink", linkname: "/var/tmp" },
      { name: "up", type: "symlink", linkname: "../../../.." },
      { name: "out/escaped", content: "x" },
      { name: "up/up/escaped", type: "directory" },
      { name: "up/leak", type: "link", linkname: "out/escaped" },
    ];
    await makeOciLayout(at("oci"), { layers: [[...base, ...links]] });
    const out = await bench.probe("sb-a", "ls -d /escaped; cat /var/tmp/escaped /leak", { image: at("oci") });
    expect(out).toBe("/escaped\nxx");
    for (const place of [bench.stateDir, join(bench.stateDir, "layers"), "/var/tmp", bench.folder, "/"]) {
      expect(await readdir(place)).not.toContain("escaped");
    }
    const leak: Entry[] = [
      { name: "etc2", type: "symlink", linkname: "/etc" },
      { name: "leak", type: "link", linkname: "etc2/shadow" },
    ];
    await makeOciLayout(at("leaky"), { layers: [[...base, ...leak]] });
    const { code, message } = await refusal(at("leaky"));
    expect(code).toBe("image_error");
    expect(message).toContain("neither an earlier entry of its layer nor in a lower one");
  });

  test("links of the image's at /etc, /proc, /dev and /tmp lead nowhere but into the sandbox", async () => {
    const victim = at("victim");
    await mkdir(victim);
    const links: Entry[] = [
      { name: "proc", type: "symlink", linkname: victim },
      { name: "sys", type: "symlink", linkname: `../../../..${victim}` },
      { name: "run", type: "symlink", linkname: victim },
      { name: "mnt", type: "symlink", linkname: victim },
    ];
    const kept = base.filter(({ name }) => name !== "etc" && !name.startsWith("etc/"));
    const layer = [...kept, ...links, { name: "etc", type: "symlink" as const, linkname: victim }];
    await makeOciLayout(at("oci"), { layers: [layer] });
    await bench.create("sb-a", { image: at("oci") }).catch(() => undefined);
    expect(await readdir(victim)).toEqual([]);
  });

  test("an image whose /.sandmesh is a link is refused", async () => {
    await makeOciLayout(at("oci"), {
      layers: [[...base, { name: ".sandmesh", type: "symlink", linkname: "/var/tmp" }]],
    });
    expect((await refusal(at("oci"))).message).toContain("/.sandmesh");
    expect(await bench.left()).toEqual([]);
  });

  test("an image that cannot be a root is at fault itself, for good, and not the machine, for now", async () => {
    const root = async (spoil: (image: string) => Promise<unknown>) => {
      const image = await makeBusyboxRoot(at(`root-${Math.random()}`));
      await spoil(image);
      return image;
    };
    const file = (name: string) =>
      root(async (image) => {
        await rm(join(image, name), { recursive: true, force: true });
        await writeFile(join(image, name), "");
      });
    const cases: [string, string][] = [
      ["/proc", "it is on proc, no file system of data"],
      [at("twice"), "no overlay takes it"],
      [await file("dev"), "/dev is not a folder"],
      [await file("proc"), "/proc is not a folder"],
      [await file("sys"), "/sys is not a folder"],
      [await file("etc"), "its /etc cannot hold"],
      [await file(".sandmesh"), "/.sandmesh"],
      [await root((image) => mkdir(join(image, "etc/hosts/x"), { recursive: true })), "its /etc cannot hold"],
      [await root((image) => symlink("/nowhere", join(image, "dev"))), "/dev is not a folder"],
    ];
    const overlay = async (lower: string, point: string) => {
      for (const folder of ["none", point]) await mkdir(at(folder), { recursive: true });
      await Bun.$`mount -t overlay -o lowerdir=${lower}:${at("none")} overlay ${at(point)}`.quiet();
    };
    await overlay(await root(async () => undefined), "once");
    await overlay(at("once"), "twice");
    try {
      for (const [image, words] of cases) {
        const refused = await bench.create("sb-refused", { image }).catch((error: unknown) => error);
        expect(refused).toMatchObject({ code: "image_error", retryable: false, field: "spec.image" });
        expect(String(refused)).toContain(words);
      }
    } finally {
      for (const point of ["twice", "once"]) await Bun.$`umount ${at(point)}`.quiet();
    }
    expect(await bench.left()).toEqual([]);
  });

  const broken: [string, Entry[], string][] = [
    [
      "a hard link to nothing",
      [{ name: "data/a", type: "link", linkname: "etc/none" }],
      "entry 'data/a' is a hard link to 'etc/none', which is neither an earlier entry of its layer nor",
    ],
    [
      "a hard link to a folder",
      [
        { name: "d", type: "directory" },
        { name: "a", type: "link", linkname: "d" },
      ],
      "entry 'a' is a hard link to 'd', which is a folder",
    ],
    [
      "a file that is another's folder",
      [
        { name: "f", content: "" },
        { name: "f/g", content: "" },
      ],
      "entry 'f/g' lies in 'f', which is no folder",
    ],
  ];
  for (const [what, entries, words] of broken) {
    test(`of a layer with ${what} the entry and the layer are named, not a place on the mesh's disk`, async () => {
      await makeOciLayout(at("oci"), { layers: [base, entries] });
      const { code, message } = await refusal(at("oci"));
      expect(code).toBe("image_error");
      expect(message).toMatch(/layer sha256:[0-9a-f]{64}: /);
      expect(message).toContain(words);
      expect(message).not.toContain(bench.stateDir);
    });
  }

  test("a blob that is not what its digest says is refused", async () => {
    const [layer = ""] = await makeOciLayout(at("oci"), { layers: [base], gzip: false });
    await appendFile(layer, "more");
    expect((await refusal(at("oci"))).message).toContain("digest");
    expect(await layersOnDisk()).toEqual([]);
  });

  test("a layer that was cut off is refused", async () => {
    const image = await makeDockerArchive(at("image.tar"), { layers: [base] });
    await truncate(image, 1_000_000);
    expect((await refusal(image)).code).toBe("image_error");
    const paths = await makeOciLayout(at("oci"), { layers: [base] });
    await truncate(paths[0] ?? "", 10_000);
    expect((await refusal(at("oci"))).code).toBe("image_error");
  });

  test("what is no image is an ImageError that says what there is", async () => {
    await mkdir(at("empty"));
    await writeFile(at("text"), "no tar");
    await mkdir(at("half"));
    await writeFile(join(at("half"), "oci-layout"), "{}");
    await writeFile(
      join(at("half"), "index.json"),
      `{"manifests":[{"digest":"sha256:../../../etc/passwd"}]}`,
    );
    await symlink("/nowhere", at("dangling"));
    for (const image of [
      "debian:12",
      "./here",
      at("none"),
      at("empty"),
      at("text"),
      at("half"),
      at("dangling"),
      "/dev/null",
    ]) {
      const { code, message } = await refusal(image);
      expect([image, code]).toEqual([image, "image_error"]);
      expect([image, message.includes("\n")]).toEqual([image, false]);
      expect(message).toContain("docker-archive");
    }
    expect(await bench.left()).toEqual([]);
  });
});
