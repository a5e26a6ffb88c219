// Images as files: each form runs, and layers are shared. Hostile and broken ones: refused.test.ts.
import { afterEach, beforeEach, describe, expect, setDefaultTimeout, test } from "bun:test";
import { readdir, readFile, stat, utimes, writeFile } from "node:fs/promises";
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
    const other = bench.create("sb-d", { image: `${image}#other:latest` });
    await expect(other).rejects.toThrow("small:latest");
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
    const names = await readdir(join(bench.stateDir, "layers"));
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

  test("an absolute name in a layer lands inside", async () => {
    await makeOciLayout(at("oci"), { layers: [[...base, { name: "/etc/absolute", content: "inside" }]] });
    expect(await bench.probe("sb-a", "cat /etc/absolute", { image: at("oci") })).toContain("inside");
  });
});
