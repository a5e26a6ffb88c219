// Images as files: each form runs, layers are shared, and a hostile or broken one is refused before it can do harm.
import { afterEach, beforeEach, describe, expect, setDefaultTimeout, test } from "bun:test";
import {
  appendFile,
  mkdir,
  readdir,
  readFile,
  rm,
  stat,
  symlink,
  truncate,
  utimes,
  writeFile,
} from "node:fs/promises";
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

describe.if(process.getuid?.() === 0)("images", () => {
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

  test("a root file system folder with nothing but busybox", async () => {
    const image = await makeBusyboxRoot(at("root"));
    const out = await bench.probe(
      "sb-a",
      "id -u; hostname; echo x > /new; ls / | xargs echo; ls /dev | wc -l",
      { image },
    );
    expect(out).toContain("0\nsb-a\n");
    expect(out).toContain("new");
    expect(await readdir(image)).not.toContain("new");
    expect(await readdir(image)).not.toContain(".sandmesh");
  });

  test("an OCI layout: environment, user, working folder of its configuration", async () => {
    const config = {
      Env: ["FROM_IMAGE=yes", "PATH=/bin", "B=image"],
      User: "agent",
      WorkingDir: "/work/here",
    };
    await makeOciLayout(at("oci"), { layers: [base], config });
    const script = "id -u; id -g; id -G; tr '\\0' '\\n' < /proc/1/environ | grep BOOT; stat -c %F /work/here";
    const out = await bench.probe("sb-a", script, { image: at("oci"), env: { B: "spec" } });
    expect(out).toContain("1000\n1000\n1000 1001\n");
    const bootstrap = JSON.parse(out.match(/SANDMESH_BOOTSTRAP=(.*)/)?.[1] ?? "{}");
    expect(bootstrap.env).toEqual({ FROM_IMAGE: "yes", PATH: "/bin", B: "spec", HOME: "/home/agent" });
    expect(bootstrap.cwd).toBe("/work/here");
    expect(out).toContain("directory");
  });

  test("a docker-archive tar, and the entrypoint beside the daemon where asked for", async () => {
    const config = { Entrypoint: ["/bin/sh", "-c"], Cmd: ["echo started > /tmp/started; sleep 1000"] };
    const image = await makeDockerArchive(at("image.tar"), { layers: [base], config });
    const wait =
      "i=0; until [ -s /tmp/started ] || [ $i = 300 ]; do sleep 0.1; i=$((i + 1)); done; cat /tmp/started";
    expect(await bench.probe("sb-a", wait, { image, entrypoint: true })).toContain("started");
    expect(await bench.probe("sb-b", "sleep 0.3; cat /tmp/started", { image })).not.toContain("started\n");
    expect(await bench.probe("sb-c", "echo ok", { image: `${image}#small:latest` })).toContain("ok");
    expect((await refusal(`${image}#other:latest`)).message).toContain("small:latest");
  });

  test("an OCI layout that is written anew in its place is taken anew", async () => {
    for (const content of ["first", "second"]) {
      await makeOciLayout(at("oci"), { layers: [base, [{ name: "which", content }]] });
      expect(await bench.probe(`sb-${content}`, "cat /which", { image: at("oci") })).toBe(content);
    }
  });

  test("a tar that is written over in its place, with its size and time as before, is taken anew", async () => {
    const layers = (content: string): Entry[][] => [base, [{ name: "which", content }]];
    const image = await makeDockerArchive(at("image.tar"), { layers: layers("one") });
    // Whole seconds, which `utimes` sets exactly.
    const time = new Date(1_700_000_000_000);
    await utimes(image, time, time);
    const before = await stat(image);
    expect(await bench.probe("sb-one", "cat /which", { image })).toBe("one");
    const other = await makeDockerArchive(at("other.tar"), { layers: layers("two") });
    await writeFile(image, await readFile(other));
    await utimes(image, time, time);
    const { ino, size, mtimeMs } = await stat(image);
    expect([ino, size, mtimeMs]).toEqual([before.ino, before.size, before.mtimeMs]);
    expect(await bench.probe("sb-two", "cat /which", { image })).toBe("two");
  });

  test("an OCI layout as one tar", async () => {
    await makeOciLayout(at("oci"), { layers: [base] });
    await Bun.$`tar -C ${at("oci")} -cf ${at("oci.tar")} .`.quiet();
    expect(await bench.probe("sb-a", "echo runs", { image: at("oci.tar") })).toContain("runs");
  });

  test("whiteouts and opaque folders of upper layers hide what is below", async () => {
    const low: Entry[] = [
      { name: "data/gone", content: "1" },
      { name: "data/kept", content: "2" },
      { name: "full/one", content: "3" },
      { name: "full/two", content: "4" },
    ];
    const high: Entry[] = [
      { name: "data/.wh.gone" },
      { name: "full/.wh..wh..opq" },
      { name: "full/new", content: "5" },
      { name: "data/.wh.never-there" },
    ];
    await makeOciLayout(at("oci"), { layers: [base, low, high] });
    const out = await bench.probe("sb-a", "ls /data /full | xargs echo; cat /data/kept", {
      image: at("oci"),
    });
    expect(out).toContain("/data: kept /full: new");
  });

  test("layers are unpacked once and shared, also by images that have only one in common, and never change", async () => {
    await makeOciLayout(at("one"), { layers: [base, [{ name: "etc/one", content: "1" }]] });
    await makeOciLayout(at("two"), { layers: [base, [{ name: "etc/two", content: "2" }]] });
    const script = "stat -c %i /bin/busybox; echo changed > /etc/passwd; rm /bin/wc; cat /etc/passwd";
    // At once: the first use of a layer is a race.
    const probes = [1, 2, 3, 4, 5, 6].map((i) =>
      bench.probe(`sb-${i}`, script, { image: at(i % 2 === 0 ? "one" : "two") }),
    );
    const inodes = (await Promise.all(probes)).map((out) => out.split("\n")[0]);
    expect(new Set(inodes).size).toBe(1);
    const names = await layersOnDisk();
    expect(names).toHaveLength(3);
    const stored = await Promise.all(
      names.map((n) => stat(join(bench.stateDir, "layers", n, "bin/busybox")).catch(() => undefined)),
    );
    expect(String(stored.find((s) => s !== undefined)?.ino)).toBe(inodes[0] ?? "");
    expect(await bench.probe("sb-7", "cat /etc/passwd; ls /bin/wc", { image: at("one") })).toContain(
      "root:x:0",
    );
  });

  test("modes, owners, hard links and set-user-id bits are the image's", async () => {
    const extra: Entry[] = [
      { name: "opt", type: "directory", mode: 0o711, uid: 7, gid: 8 },
      { name: "opt/tool", content: "x", mode: 0o4755, uid: 3, gid: 4 },
      { name: "opt/twin", type: "link", linkname: "opt/tool" },
      { name: "opt/abs", type: "symlink", linkname: "/etc/passwd" },
    ];
    await makeOciLayout(at("oci"), { layers: [[...base, ...extra]] });
    const out = await bench.probe("sb-a", "stat -c '%a %u %g %h' /opt /opt/tool; cat /opt/abs", {
      image: at("oci"),
    });
    expect(out).toContain("711 7 8");
    expect(out).toContain("4755 3 4 2");
    expect(out).toContain("agent:x:1000");
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

  test("an absolute name in a layer lands inside", async () => {
    await makeOciLayout(at("oci"), { layers: [[...base, { name: "/etc/absolute", content: "inside" }]] });
    expect(await bench.probe("sb-a", "cat /etc/absolute", { image: at("oci") })).toContain("inside");
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
