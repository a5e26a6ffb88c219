// A volume shows files: none of the kernel's own file systems, by which a sandbox would be in another, or on the machine.
import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { until } from "../contract.test-suite.ts";
import { dataTypes, isData } from "./file-systems.ts";
import { Bench, requestFor, unmountBelow, volume } from "./testing.ts";

const isRoot = process.getuid?.() === 0;
const REFUSED = { code: "invalid_request", retryable: false, field: "spec.volumes.0.source" };

test("file systems of data are told from the kernel's own, and what is not known is not of data", () => {
  const kernels = [
    "proc",
    "sysfs",
    "cgroup",
    "cgroup2",
    "devtmpfs",
    "devpts",
    "debugfs",
    "tracefs",
    "securityfs",
  ];
  const others = [
    "bpf",
    "configfs",
    "mqueue",
    "nsfs",
    "fusectl",
    "efivarfs",
    "binfmt_misc",
    "pstore",
    "of-tomorrow",
  ];
  const types = dataTypes();
  expect([...kernels, ...others].filter((type) => isData(type, types))).toEqual([]);
  const data = ["tmpfs", "overlay", "nfs4", "fuse.sshfs", "fuse"];
  expect(data.filter((type) => isData(type, types))).toEqual(data);
});

test("no volume or image is of the kernel's own file systems; the field and the type are told", async () => {
  await using bench = await Bench.make();
  const wishes = {
    "/proc": "proc",
    "/proc/self": "proc",
    "/proc/1/task": "proc",
    "/sys": "sysfs",
    "/dev/pts": "devpts",
  };
  for (const [source, type] of Object.entries(wishes)) {
    const asVolume = bench.provider.validate(requestFor("sb-v", volume(source)).spec);
    const message = expect.stringContaining(`${source} is on ${type}`);
    await expect(asVolume).rejects.toMatchObject({ ...REFUSED, message });
    const asImage = bench.provider.validate(requestFor("sb-i", { image: source }).spec);
    await expect(asImage).rejects.toMatchObject({
      code: "image_error",
      message: expect.stringContaining(type),
    });
  }
});

describe.if(isRoot)("as root", () => {
  let bench: Bench;
  let folder: string;
  const mount = (...argv: string[]) => Bun.$`mount ${argv}`.quiet();
  const shown = (sandbox: string, script: string, source: string) =>
    bench.probe(sandbox, script, volume(source)).catch((error: unknown) => {
      // The probe is the first volume.
      expect(error).toMatchObject({ ...REFUSED, field: "spec.volumes.1.source" });
      return "refused";
    });

  beforeEach(async () => {
    bench = await Bench.make();
    folder = await mkdtemp("/var/tmp/sandmesh-volumes-");
    await mkdir(join(folder, "data", "x"), { recursive: true });
  });
  afterEach(async () => {
    await bench[Symbol.asyncDispose]();
    await unmountBelow(folder);
    await rm(folder, { recursive: true, force: true });
  });

  const ways = [
    ["as it is", "/v", async () => "/proc"],
    [
      "mounted below a folder",
      "/v/x",
      async () => {
        await mount("-t", "proc", "proc", join(folder, "data", "x"));
        return join(folder, "data");
      },
    ],
  ] as const;

  for (const [words, at, make] of ways) {
    test(`a procfs as volume, ${words}, leads to no other sandbox's files`, async () => {
      await bench.probe("sb-other", "echo OF-THE-OTHER > /root/secret");
      const script = `for p in ${at}/[0-9]*; do cat $p/root/root/secret; echo > $p/root/root/written; done 2>/dev/null; true`;
      expect(await shown("sb-in", script, await make())).toBe("refused");
    });

    test(`a procfs as volume, ${words}, leads to no file of the machine's by a process of another user`, async () => {
      const nobody = Bun.spawn([
        "setpriv",
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
        "sleep",
        "1000",
      ]);
      await writeFile(join(folder, "key"), "THE-MACHINES-KEY");
      const script = `python3 - <<'E'
import ctypes
libc = ctypes.CDLL(None)
class Header(ctypes.Structure): _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]
class Data(ctypes.Structure): _fields_ = [(name, ctypes.c_uint32) for name in "epi"]
header, data = Header(0x20080522, 0), (Data * 2)()
libc.capget(ctypes.byref(header), data)
libc.setfsgid(65534)
libc.setfsuid(65534)
for each in data: each.e = each.p
libc.capset(ctypes.byref(header), data)
print(open("${at}/${nobody.pid}/root${folder}/key").read())
open("${at}/${nobody.pid}/root${folder}/written", "w")
E`;
      try {
        expect(await shown("sb-in", script, await make())).toBe("refused");
        expect(await readdir(folder)).not.toContain("written");
      } finally {
        nobody.kill("SIGKILL");
        await nobody.exited;
      }
    });
  }

  test("a procfs that comes and goes below a volume while sandboxes start is in none of them", async () => {
    const point = join(folder, "data", "x");
    let swapping = true;
    const swap = async () => {
      while (swapping) {
        await mount("-t", "proc", "proc", point);
        await Bun.$`umount ${point}`.quiet();
      }
    };
    const swapped = swap();
    const seen = new Set<string>();
    try {
      for (let i = 0; i < 30; i++) {
        seen.add(await shown(`sb-${i}`, "ls -A /v/x", join(folder, "data")));
        await bench.remove(`sb-${i}`);
      }
    } finally {
      swapping = false;
      await swapped;
    }
    expect([...seen].filter((each) => each !== "" && each !== "refused")).toEqual([]);
  });

  test("what is mounted on the machine after a sandbox has begun does not come into its volume", async () => {
    const data = join(folder, "data");
    await mount("--bind", data, data);
    await mount("--make-shared", data);
    const script = "echo begun; until [ -e /v/go ]; do sleep 0.02; done; ls -A /v/x | head -n 1";
    const later = shown("sb-in", script, data);
    await until("the script's begin", async () => (await bench.log("sb-in")) !== "");
    await mount("-t", "proc", "proc", join(data, "x"));
    await writeFile(join(data, "go"), "");
    expect(await later).toBe("begun\n");
  });

  test("data mounted below a volume is shown with it, also a file and what is deeper, and cannot be written", async () => {
    const data = join(folder, "data");
    await writeFile(join(folder, "file"), "of the file");
    await writeFile(join(data, "f"), "");
    await mount("--bind", join(folder, "file"), join(data, "f"));
    await mount("-t", "tmpfs", "tmpfs", join(data, "x"));
    await mkdir(join(data, "x", "a b"));
    await mount("-t", "tmpfs", "tmpfs", join(data, "x", "a b"));
    await writeFile(join(data, "x", "a b", "deep"), "of the deep");
    const script =
      "cat /v/f '/v/x/a b/deep'; echo; for f in /v/f /v/x/n '/v/x/a b/n'; do echo > \"$f\"; done";
    const out = await shown("sb-in", script, data);
    expect(out).toStartWith("of the fileof the deep\n");
    expect(out.match(/Read-only file system/g)).toHaveLength(3);
  });

  test("a volume is not of /run, where services' sockets are, by whatever path", async () => {
    const services = await mkdtemp("/run/sandmesh-volumes-");
    try {
      await mount("--bind", services, join(folder, "data", "x"));
      // As `ip netns add` does; the answer is that of an empty /run.
      await writeFile(join(services, "netns"), "");
      await mount("--bind", "/proc/self/ns/net", join(services, "netns"));
      for (const source of ["/run", "/var/run", services, join(folder, "data", "x"), join(folder, "data")]) {
        const refused = await bench.provider
          .validate(requestFor("sb-v", volume(source)).spec)
          .catch((e: unknown) => e);
        expect(refused).toMatchObject({
          ...REFUSED,
          message: expect.stringContaining("services have their sockets"),
        });
      }
    } finally {
      await Bun.$`umount ${join(services, "netns")}`.quiet().nothrow();
      await Bun.$`umount ${join(folder, "data", "x")}`.quiet().nothrow();
      await rm(services, { recursive: true });
    }
  });
});
