// What a sandbox can see and do of the machine and of other sandboxes: each claim tried from inside, as its root.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { chmod, mkdir, readFile, stat, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { makeBusyboxRoot } from "../../../test/images/images.ts";
import { isAlive } from "./processes.ts";
import { Bench } from "./testing.ts";

const isRoot = process.getuid?.() === 0;

describe.if(isRoot)("a sandbox of image host", () => {
  let bench: Bench;
  let count = 0;
  const probe = (script: string, wish: object = {}) => bench.probe(`sb-probe${count++}`, script, wish);

  beforeAll(async () => {
    bench = await Bench.make();
  });
  afterAll(async () => {
    await bench[Symbol.asyncDispose]();
  });

  test("sees no process but its own, and can kill none of the machine's", async () => {
    const stranger = Bun.spawn(["sleep", "1000"]);
    try {
      const out = await probe(
        `ls /proc | grep -c '^[0-9]*$'; kill -9 ${stranger.pid} && echo killed; echo pid $$`,
      );
      const [processes, ...rest] = out.split("\n");
      expect(Number(processes)).toBeLessThanOrEqual(4);
      expect(rest.join("\n")).toContain("pid 1");
      expect(rest.join("\n")).not.toContain("killed");
      expect(stranger.exitCode).toBeNull();
    } finally {
      stranger.kill("SIGKILL");
      await stranger.exited;
    }
  });

  test("`kill -9 -1` ends nothing outside", async () => {
    await bench.create("sb-neighbour");
    const neighbour = await bench.first("sb-neighbour");
    await probe("kill -9 -1; sleep 0.1; echo alive");
    expect(isAlive(neighbour)).toBe(true);
  });

  test("the state folder, with credentials in it, cannot be seen, also not from a user namespace of its own", async () => {
    const secret = join(bench.stateDir, "secret.creds");
    await writeFile(secret, "SECRET-SEED");
    const out = await probe(
      `cat ${secret}; ls ${bench.stateDir}; umount ${bench.stateDir}; cat ${secret}
      unshare -Urm sh -c 'umount ${bench.stateDir}; cat ${secret}; mkdir /tmp/b; mount --bind / /tmp/b; cat /tmp/b${secret}'
      grep -r SECRET-SEED /proc/1/environ /proc/self/mountinfo`,
    );
    expect(out).not.toContain("SECRET-SEED");
    expect(out).not.toContain("sandboxes");
  });

  test("a folder that it was told to hide is hidden", async () => {
    const folder = join(bench.folder, "private");
    await mkdir(folder, { recursive: true });
    await writeFile(join(folder, "key"), "PRIVATE-KEY");
    await using other = await Bench.make({ hide: [folder] });
    expect(await other.probe("sb-hide", `cat ${folder}/key; echo seen: $(ls ${folder})`)).not.toContain(
      "PRIVATE-KEY",
    );
    expect(await probe(`cat ${folder}/key`)).toContain("PRIVATE-KEY");
  });

  test("what it writes, it alone sees; the machine's files never change", async () => {
    const victim = join(bench.folder, "victim");
    await writeFile(victim, "before");
    const out = await probe(
      `echo after > ${victim}; cat ${victim}; rm /etc/passwd && echo removed; echo x > /usr/bin/new-tool && cat /usr/bin/new-tool; echo mine > /tmp/mine`,
    );
    expect(out).toContain("after");
    expect(out).toContain("removed");
    expect(out).toContain("x");
    expect(await readFile(victim, "utf8")).toBe("before");
    await stat("/etc/passwd");
    await expect(stat("/usr/bin/new-tool")).rejects.toThrow();
    const other = await probe(`cat ${victim}; ls /usr/bin/new-tool /tmp/mine; ls -A /tmp | wc -l`);
    expect(other).toContain("before");
    expect(other).toContain("cannot access '/usr/bin/new-tool'");
    expect(other.trim().split("\n").pop()).toBe("0");
  });

  test("cannot mount, load modules, make device nodes, trace, or set the clock or the machine's name", async () => {
    const out = await probe(
      `mount -t tmpfs x /mnt && echo BROKEN mount
      mount -o remount,rw /proc/sys && echo BROKEN remount
      mknod /tmp/disk b 254 0 && echo BROKEN mknod
      mknod /dev/disk b 254 0 && echo BROKEN mknod in /dev
      date -s @1 && echo BROKEN clock
      hostname other && echo BROKEN name
      echo 1 > /proc/sys/kernel/panic && echo BROKEN sysctl
      echo b > /proc/sysrq-trigger && echo BROKEN sysrq
      echo 1 > /sys/kernel/mm/ksm/run && echo BROKEN sysfs
      cat /proc/kcore | head -c 1 | grep -q . && echo BROKEN kcore
      chroot / true && echo chroot works
      grep CapBnd /proc/self/status`,
    );
    expect(out).not.toContain("BROKEN");
    expect(out).toContain("chroot works");
    // chown dac_override fowner fsetid kill setgid setuid setpcap net_bind_service net_raw sys_chroot audit_write setfcap
    expect(out).toContain("CapBnd:\t00000000a00425fb");
  });

  test("has a hostname, hosts and working folders of its own", async () => {
    const out = await bench.probe(
      "sb-named",
      "hostname; cat /etc/hostname; grep -c sb-named /etc/hosts; stat -c %a /tmp /run; touch /run/x && echo ok; ls /dev | sort | xargs echo; echo hi > /dev/null; head -c 1 /dev/urandom | wc -c; echo out > /dev/stdout",
    );
    expect(out.split("\n").slice(0, 6)).toEqual(["sb-named", "sb-named", "1", "1777", "755", "ok"]);
    expect(out).toContain("fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero");
    expect(out.trim().endsWith("1\nout")).toBe(true);
  });

  test("with network none it reaches neither the machine's ports nor anything else, but itself", async () => {
    using server = Bun.listen({ hostname: "0.0.0.0", port: 0, socket: { data() {} } });
    const address = (await Bun.$`hostname -I`.quiet().nothrow().text()).split(" ")[0] || "127.0.0.1";
    const tryPort = (host: string) =>
      `timeout 2 bash -c 'exec 3<>/dev/tcp/${host}/${server.port} && echo REACHED'`;
    const script = `${tryPort("127.0.0.1")}; ${tryPort(address)}; ls /sys/class/net | xargs echo net; cat /sys/class/net/lo/operstate`;
    const out = await probe(script);
    expect(out).not.toContain("REACHED");
    expect(out).toContain("net lo\n");
    expect(await probe(tryPort("127.0.0.1"), { network: "host" })).toContain("REACHED");
  });

  test("abstract sockets and shared memory of the machine are not its own", async () => {
    const out = await probe(
      "cat /proc/net/unix | wc -l; ls -A /dev/shm /dev/mqueue; ipcs -m | grep -c 0x0; true",
    );
    expect(Number(out.split("\n")[0])).toBeLessThan(3);
  });

  test("a volume shows the folder, read-only, also to root", async () => {
    const data = join(bench.folder, "data");
    await mkdir(data, { recursive: true });
    await writeFile(join(data, "set.txt"), "the data");
    const volumes = [{ name: "data", source: data, mount_path: "/deep/in/data" }];
    const out = await probe(
      "cat /deep/in/data/set.txt; echo; echo x > /deep/in/data/set.txt && echo BROKEN; touch /deep/in/data/n && echo BROKEN; mount -o remount,rw /deep/in/data && echo BROKEN; chmod 777 /deep/in/data && echo BROKEN; true",
      { volumes },
    );
    expect(out).toContain("the data");
    expect(out).not.toContain("BROKEN");
  });

  test("a volume in /etc's place is shown as it is, where the sandbox could not begin for its own names in it", async () => {
    const etc = join(bench.folder, "etc");
    await mkdir(etc, { recursive: true });
    for (const name of ["passwd", "hosts"]) await writeFile(join(etc, name), `the volume's ${name}`);
    const volumes = [{ name: "etc", source: etc, mount_path: "/etc" }];
    expect(await probe("ls /etc; cat /etc/hosts", { volumes })).toBe("hosts\npasswd\nthe volume's hosts");
  });

  describe("volumes within one another", () => {
    const source = async (name: string, ...folders: string[]) => {
      const path = join(bench.folder, name);
      for (const folder of ["", ...folders]) await mkdir(join(path, folder), { recursive: true });
      await writeFile(join(path, `of-${name}`), "");
      return path;
    };
    const shown = (volumes: object[]) => probe("ls /a /a/vb | xargs echo", { volumes });

    test("the outer one does not cover the inner one, in whatever order they are asked for", async () => {
      const inner = { name: "inner", source: await source("inner"), mount_path: "/a/vb" };
      const outer = { name: "outer", source: await source("outer", "vb"), mount_path: "/a" };
      const all = "/a: of-outer vb /a/vb: of-inner\n";
      expect(await shown([inner, outer])).toBe(all);
      expect(await shown([outer, inner])).toBe(all);
    });

    test("a place that the outer one does not have is refused by its field, not as a fault of the provider's", async () => {
      const inner = { name: "inner", source: await source("inner"), mount_path: "/a/none" };
      const outer = { name: "outer", source: await source("outer"), mount_path: "/a" };
      const field = "spec.volumes.0.mount_path";
      const refused = { code: "invalid_request", retryable: false, field };
      await expect(bench.create("sb-r1", { volumes: [inner, outer] })).rejects.toMatchObject(refused);
      const file = { ...inner, mount_path: "/etc/passwd" };
      await expect(bench.create("sb-r2", { volumes: [file] })).rejects.toMatchObject(refused);
      const cwd = { code: "invalid_request", retryable: false, field: "spec.cwd" };
      const volumes = [outer];
      await expect(bench.create("sb-r3", { volumes, cwd: "/a/none" })).rejects.toMatchObject(cwd);
      await expect(bench.create("sb-r4", { cwd: "/etc/passwd/x" })).rejects.toMatchObject(cwd);
    });

    test("two paths that are one by a link do not show one volume in the other's place", async () => {
      const image = await makeBusyboxRoot(join(bench.folder, "root"));
      await symlink("/data", join(image, "link"));
      await mkdir(join(image, "data"));
      const one = { name: "one", source: await source("one"), mount_path: "/data" };
      const two = { name: "two", source: await source("two"), mount_path: "/link" };
      for (const volumes of [
        [one, two],
        [two, one],
      ]) {
        const refused = { code: "invalid_request", message: expect.stringContaining("covered by another") };
        await expect(bench.create("sb-r5", { image, volumes })).rejects.toMatchObject(refused);
      }
    });
  });

  test("a volume or image in, at or above the state folder is refused", async () => {
    for (const source of [bench.stateDir, bench.folder, "/", join(bench.stateDir, "sandboxes")]) {
      const volumes = [{ name: "v", source, mount_path: "/v" }];
      await expect(bench.create("sb-refused", { volumes })).rejects.toThrow("state folder");
      await expect(bench.create("sb-refused", { image: source })).rejects.toThrow("state folder");
    }
    for (const mount_path of ["/", "/proc/x", "/dev", "/.sandmesh/daemon", "relative", "/a/../b", "/a//b"]) {
      const volumes = [{ name: "v", source: "/usr", mount_path }];
      await expect(bench.create("sb-refused", { volumes })).rejects.toThrow("spec.volumes.0.mount_path");
    }
    expect(
      await bench.provider
        .list(AbortSignal.timeout(1000))
        .then((l) => l.some((e) => e.sandbox === "sb-refused")),
    ).toBe(false);
  });

  test("runs as the user of the spec, by name or number, with that user's groups and no capabilities", async () => {
    const out = await probe(
      "id -u; id -g; echo $HOME; grep CapEff /proc/self/status; touch /etc/x && echo BROKEN; true",
      {
        user: "nobody",
      },
    );
    expect(out).toContain("65534\n65534\n");
    expect(out).toContain("CapEff:\t0000000000000000");
    expect(out).not.toContain("BROKEN");
    expect(await probe("id -u; id -g", { user: "1234:567" })).toContain("1234\n567");
    await expect(bench.create("sb-nouser", { user: "no-such-user" })).rejects.toMatchObject({
      code: "image_error",
      field: "spec.user",
    });
  });

  test("the supervisor and the launcher are not visible from inside, and their pipes are not held", async () => {
    const out = await probe(
      "ls /proc/self/fd | grep -vx \"x*$SANDMESH_COMMANDS_CGROUP\" | xargs echo fds; readlink /proc/1/fd/0; cat /proc/1/cmdline | tr '\\0' ' '",
    );
    // 0, 1, 2, and the one that ls itself has open. The folder of commands' cgroups is for the daemon, which hands it to none.
    expect(out).toContain("fds 0 1 2 3\n");
    expect(out).toContain("/dev/null");
    expect(out).not.toContain("launcher.py");
  });

  test("its own folder on the machine cannot be entered by another user", async () => {
    await bench.create("sb-private");
    const { mode } = await stat(join(bench.stateDir, "sandboxes"));
    expect(mode & 0o077).toBe(0);
    await chmod(bench.stateDir, 0o755);
    const reached =
      await Bun.$`setpriv --reuid 65534 --regid 65534 --clear-groups ls ${join(bench.stateDir, "sandboxes/sb-private/upper")}`
        .quiet()
        .nothrow();
    expect(reached.exitCode).not.toBe(0);
  });
});
