// Without root: what user namespaces allow. As root, this file runs itself once more as `nobody`.
import { afterEach, beforeEach, describe, expect, setDefaultTimeout, test } from "bun:test";
import { existsSync } from "node:fs";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join, relative } from "node:path";
import { busyboxEntries, type Entry, makeBusyboxRoot, makeOciLayout } from "../../../test/images/images.ts";
import { diagnose } from "./diagnose.ts";
import { Bench, signal, volume } from "./testing.ts";

setDefaultTimeout(120_000);
const ROOT = join(import.meta.dir, "..", "..", "..");
/** Where root has mounted for these tests what nobody else can: data, and a procfs, each below a folder. */
const MOUNTED = "/media/sandmesh-tests";
const isRoot = process.getuid?.() === 0;
const NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all"];

if (isRoot)
  test("the tests below, the provider contract and layers pass as an unprivileged user", async () => {
    // The checkout may lie in a folder that nobody else may enter: bound to a place that all may, in a mount
    // namespace of its own.
    const place = "/mnt";
    const mounts = `mount -t tmpfs tmpfs /media && mkdir -p ${MOUNTED}/data/x ${MOUNTED}/proc/x &&
      mount -t tmpfs tmpfs ${MOUNTED}/data/x && echo "of the inner" > ${MOUNTED}/data/x/f && mount -t proc proc ${MOUNTED}/proc/x`;
    const bound = `${mounts} && mount --bind "$1" ${place} && shift && exec "$@"`;
    const others = ["contract.test.ts", "image/layers.test.ts"].map((name) => join(import.meta.dir, name));
    const files = [import.meta.path, ...others].map((path) => join(place, relative(ROOT, path)));
    // Bun comes with the checkout, or with the machine.
    const own = !relative(ROOT, process.execPath).startsWith("..");
    const bun = own ? join(place, relative(ROOT, process.execPath)) : process.execPath;
    const inside = [...NOBODY, bun, "test", "--timeout", "60000", ...files];
    const child = Bun.spawn(["unshare", "--mount", "--", "sh", "-c", bound, "sh", ROOT, ...inside], {
      cwd: "/",
      env: { PATH: "/usr/bin:/bin:/usr/sbin:/sbin", HOME: "/tmp" },
      stdout: "ignore",
      stderr: "pipe",
    });
    const said = await new Response(child.stderr).text();
    expect(await child.exited, said).toBe(0);
    expect(said).toMatch(/ [1-9]\d+ pass/);
  }, 300_000);

if (!isRoot)
  describe("as an unprivileged user", () => {
    let bench: Bench;
    beforeEach(async () => {
      bench = await Bench.make();
    });
    afterEach(async () => {
      await bench[Symbol.asyncDispose]();
    });

    test("doctor finds namespaces and overlayfs", async () => {
      const checks = new Map((await diagnose(bench.stateDir)).map((c) => [c.check, c]));
      expect(checks.get("namespaces")?.ok).toBe(true);
      expect(checks.get("overlayfs")?.ok).toBe(true);
      expect(checks.get("privilege")?.detail).toContain("user namespaces");
    });

    test("image host runs as root inside, sees only itself, and has no network", async () => {
      const out = await bench.probe(
        "sb-a",
        "id -u; hostname; ls /proc | grep -c '^[0-9]*$'; ls /sys/class/net | xargs echo net; cat /etc/hostname; ls /usr/bin/env",
      );
      const [uid, hostname, processes, ...rest] = out.split("\n");
      expect([uid, hostname]).toEqual(["0", "sb-a"]);
      expect(Number(processes)).toBeLessThanOrEqual(4);
      expect(rest.join("\n")).toContain("net lo\nsb-a\n/usr/bin/env");
    });

    test("/tmp, / and new files are writable, root's files are not, and the machine's are never changed", async () => {
      const name = `new-${process.pid}`;
      const out = await bench.probe(
        "sb-a",
        `echo x > /tmp/t && cat /tmp/t; mkdir /${name} && echo made; touch /usr/${name} && echo new; echo y >> /usr/bin/env && echo BROKEN; mknod /dev/d b 254 0 && echo BROKEN; true`,
      );
      expect(out).toContain("x\nmade\nnew\n");
      expect(out).not.toContain("BROKEN");
      expect(await readdir("/")).not.toContain(name);
      expect(await readdir("/usr")).not.toContain(name);
    });

    test("HOME is a folder that its user may enter, whatever the machine's /root is", async () => {
      const home = `h=$(printenv SANDMESH_BOOTSTRAP | sed 's/.*"HOME": *"\\([^"]*\\)".*/\\1/')`;
      expect(await bench.probe("sb-a", `${home}; ls "$h" > /dev/null && echo entered "$h"`)).toMatch(
        /^entered \/(tmp|root)\n$/,
      );
    });

    test("the state folder is hidden, and what is not isolated is said", async () => {
      await writeFile(join(bench.stateDir, "secret"), "SECRET");
      expect(await bench.probe("sb-a", `cat ${bench.stateDir}/secret; true`)).not.toContain("SECRET");
      expect(bench.provider.notIsolated({ image: "host" }).join("\n")).toContain("the mesh's own user");
    });

    test("processes are limited for each sandbox by itself, memory is not, and the grant's warnings say so", async () => {
      const bomb = `import os, resource, time
n = 0
try:
    resource.setrlimit(resource.RLIMIT_NPROC, (1000, 1000))
    print("raised")
except ValueError:
    pass
try:
    while n < 100:
        if os.fork() == 0:
            time.sleep(1000)
        n += 1
except OSError as e:
    print("stopped", n, e.errno)`;
      for (const sandbox of ["sb-a", "sb-b"]) {
        // The shell and python3 count too.
        expect(await bench.probe(sandbox, `/usr/bin/python3 -c '${bomb}'`, { pids: 20 })).toBe(
          "stopped 18 11\n",
        );
      }
      const words = bench.provider.warnings?.({ image: "host", pids: 20 }).join("\n");
      expect(words).toContain("memory: the limit that sandboxes have by default is not held");
      expect(words).not.toContain("processes");
      expect(bench.provider.notIsolated({ image: "host" }).join("\n")).not.toContain("processes");
    });

    test("another user is refused by name, and leaves nothing", async () => {
      const refused = bench.create("sb-a", { user: "1000" });
      await expect(refused).rejects.toMatchObject({ code: "image_error", field: "spec.user" });
      await expect(refused).rejects.toThrow(/user '1000'.*user "0" \(-u 0\)/);
      expect(await bench.left()).toEqual([]);
    });

    test.if(existsSync(MOUNTED))(
      "a volume shows what is mounted below it, read-only, and one with a procfs below it is refused",
      async () => {
        const script = "cat /v/x/f; touch /v/x/n 2> /dev/null && echo BROKEN; true";
        const image = await makeBusyboxRoot(join(bench.folder, "rootfs"));
        const wish = { image, ...volume(join(MOUNTED, "data")) };
        expect(await bench.probe("sb-a", script, wish)).toBe("of the inner\n");
        const field = "spec.volumes.0.source";
        const message = expect.stringContaining(`${MOUNTED}/proc/x, where proc is mounted`);
        const refused = bench.create("sb-b", { image, ...volume(join(MOUNTED, "proc")) });
        await expect(refused).rejects.toMatchObject({ code: "invalid_request", field, message });
      },
    );

    test("folders that its commands closed are removed", async () => {
      await bench.probe("sb-a", "mkdir -p /tmp/a/b; touch /tmp/a/b/c; chmod 000 /tmp/a/b /tmp/a");
      await bench.remove("sb-a");
      expect(await bench.left()).toEqual([]);
    });

    test("a refused image's folders that are closed are removed, and it is told what is wrong with it", async () => {
      const image = join(bench.folder, "oci");
      const closed: Entry[] = [
        { name: "shut", type: "directory", mode: 0o500 },
        { name: "shut/f", content: "x" },
      ];
      await makeOciLayout(image, {
        layers: [closed],
        pack: (tar) => Buffer.concat([tar, Buffer.alloc(512)]),
      });
      await expect(bench.create("sb-a", { image })).rejects.toThrow(/does not unpack to/);
      expect(await readdir(join(bench.stateDir, "layers"))).toEqual([]);
    });

    test("the folders of an image that are closed are removed after the mesh's end as README says", async () => {
      const image = join(bench.folder, "oci");
      const mode = (name: string, bits: number): Entry => ({ name, type: "directory", mode: bits });
      const closed = [mode("ro", 0o555), mode("ro/sub", 0o555), mode("shut", 0), mode("shut/in", 0)];
      const files = [...closed, { name: "ro/sub/f", content: "x" }, { name: "shut/in/f", content: "x" }];
      await makeOciLayout(image, { layers: [await busyboxEntries(), files] });
      await bench.create("sb-a", { image });
      await bench.provider.end(signal());
      const readme = await readFile(join(ROOT, "README.md"), "utf8");
      const command =
        /`(chmod -R \S+) ~\/\.local\/state\/sandmesh`/.exec(readme)?.[1] ?? "README has no command";
      const remove = await Bun.$`sh -c ${`${command} "$1" && rm -rf "$1"`} sh ${bench.stateDir}`
        .quiet()
        .nothrow();
      expect([remove.exitCode, String(remove.stderr)]).toEqual([0, ""]);
      expect(await readdir(bench.folder)).not.toContain("state");
    });

    test("eight at once, and a root file system folder", async () => {
      const image = join(bench.folder, "rootfs");
      await mkdir(join(image, "bin"), { recursive: true });
      await Bun.$`cp /bin/busybox ${image}/bin/sh`.quiet();
      const names = Array.from({ length: 8 }, (_, i) => `sb-${i}`);
      await Promise.all(names.map((name, i) => bench.create(name, i % 2 === 0 ? { image } : {})));
      expect((await bench.provider.list(signal())).map(({ phase }) => phase)).toEqual(
        Array(8).fill("running"),
      );
      await Promise.all(names.map((name) => bench.remove(name)));
      expect(await bench.left()).toEqual([]);
    });
  });
