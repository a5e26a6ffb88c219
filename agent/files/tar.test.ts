import { afterEach, expect, test } from "bun:test";
import {
  chmodSync,
  existsSync,
  linkSync,
  lstatSync,
  lutimesSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { tarHeader } from "../../broker/contract/tar/header.ts";
import { cleanUp, drafts, drain, fill, openBelow, reasonOf, scene } from "./testing.ts";

afterEach(cleanUp);

/** Every kind of thing that a tree can hold. */
function plant(root: string): void {
  mkdirSync(join(root, "sub/empty"), { recursive: true });
  writeFileSync(join(root, "sub/script"), "#!/bin/sh\n");
  chmodSync(join(root, "sub/script"), 0o4755);
  writeFileSync(join(root, "sub/block"), Buffer.alloc(512, 7));
  writeFileSync(join(root, "empty"), "");
  linkSync(join(root, "sub/script"), join(root, "hard"));
  symlinkSync("/no/where", join(root, "sub/dangling"));
  symlinkSync("t".repeat(180), join(root, "long-target"));
  const long = `${"d".repeat(120)}/${"e".repeat(150)}`;
  mkdirSync(join(root, long), { recursive: true });
  writeFileSync(join(root, long, "ü".repeat(60)), "long");
  writeFileSync(Buffer.concat([Buffer.from(`${root}/`), Buffer.from([0x66, 0xff, 0xfe])]), "bytes");
  const sparse = join(root, "sparse");
  Bun.spawnSync(["truncate", "-s", "300000", sparse]);
  Bun.spawnSync(["mkfifo", join(root, "fifo")]);
  utimesSync(join(root, "sub/block"), 1_600_000_000.5, 1_600_000_000.5);
  chmodSync(join(root, "sub/empty"), 0o555);
  utimesSync(join(root, "sub/empty"), 1_500_000_000, 1_500_000_000);
}

/** A tree as lines of name, kind, mode, time, target and content; names as latin1, so that all bytes count. */
function describe(root: string, timeUnitMs = 1): string[] {
  const lines: string[] = [];
  const walk = (prefix: Buffer): void => {
    const folder = Buffer.concat([Buffer.from(`${root}/`), prefix]);
    for (const name of readdirSync(folder, { encoding: "buffer" })) {
      const path = Buffer.concat([folder, name]);
      const stats = lstatSync(path);
      const shown = Buffer.concat([prefix, name]).toString("latin1");
      if (stats.isFIFO()) continue;
      const content = stats.isFile() ? Bun.hash(readFileSync(path)).toString(16) : "";
      const target = stats.isSymbolicLink() ? readlinkSync(path) : "";
      const time = stats.isSymbolicLink() ? "" : Math.floor(stats.mtimeMs / timeUnitMs);
      lines.push(
        `${shown} ${(stats.mode).toString(8)} ${time} ${target} ${content} ${stats.isFile() ? stats.nlink : ""}`,
      );
      if (stats.isDirectory()) walk(Buffer.concat([prefix, name, Buffer.from("/")]));
    }
  };
  walk(Buffer.alloc(0));
  return lines.sort();
}

const run = (argv: string[], cwd: string, stdin?: Uint8Array): Buffer => {
  const done = Bun.spawnSync(argv, { cwd, stdin: stdin ?? "ignore", stdout: "pipe", stderr: "pipe" });
  if (done.exitCode !== 0) throw new Error(`${argv.join(" ")}: ${done.stderr.toString()}`);
  return done.stdout;
};

test("a tree comes back with modes, times, links, long and odd names", async () => {
  const { root, files } = scene();
  mkdirSync(join(root, "from"));
  plant(join(root, "from"));
  // As text: a number before 1970 is taken for now.
  utimesSync(join(root, "from/sub/script"), "-86400.25", "-86400.25");
  utimesSync(join(root, "from/sparse"), "-1.5", "-1.5");
  lutimesSync(join(root, "from/sub/dangling"), "-5", "-5");
  utimesSync(join(root, "from/sub"), "-7", "-7");
  const archive = await drain(await files.pack("from"), 10_000);
  expect(archive.length % 512).toBe(0);
  await fill(await files.unpack("to", false), archive, 777);
  expect(describe(join(root, "to"))).toEqual(describe(join(root, "from")));
  expect(lstatSync(join(root, "to/sub/dangling")).mtimeMs).toBe(-5000);
  expect(lstatSync(join(root, "to/hard")).ino).toBe(lstatSync(join(root, "to/sub/script")).ino);
  expect(existsSync(join(root, "to/fifo"))).toBe(false);
  // Once more over what is there: everything is replaced, nothing is left over.
  await fill(await files.unpack("to", false), archive);
  expect(describe(join(root, "to"))).toEqual(describe(join(root, "from")));
  expect(drafts(root)).toEqual([]);
  expect(openBelow(root)).toEqual([]);
});

test("files of several names are told apart where their inodes' numbers are too large for a double", async () => {
  const { root, files } = scene();
  const [disks, merged] = [join(root, "disks"), join(root, "merged")];
  for (const folder of [disks, merged]) mkdirSync(folder);
  const line = `mount -t tmpfs tmpfs "$1" && mkdir "$1/lower" "$1/other" && mount -t tmpfs tmpfs "$1/other" &&
    mkdir "$1/other/upper" "$1/other/work" && cd "$1/lower" && echo 1 >a && echo 2 >b && ln a a2 && ln b b2 &&
    mount -t overlay -o "xino=on,lowerdir=$1/lower,upperdir=$1/other/upper,workdir=$1/other/work" overlay "$2"`;
  // Where mounting is not allowed, there is no such number to be had.
  const mounted = Bun.spawnSync(["sh", "-c", line, "sh", disks, merged]).exitCode === 0;
  try {
    if (!mounted) return expect(process.geteuid?.()).not.toBe(0);
    const [a, b] = [lstatSync(join(merged, "a")), lstatSync(join(merged, "b"))];
    expect([a.ino, a.nlink]).toEqual([b.ino, 2]);
    await fill(await files.unpack("to", false), await drain(await files.pack("merged")));
    const contents = ["a", "a2", "b", "b2"].map((name) => readFileSync(join(root, "to", name), "utf8"));
    expect(contents).toEqual(["1\n", "1\n", "2\n", "2\n"]);
  } finally {
    for (const place of [merged, join(disks, "other"), disks]) Bun.spawnSync(["umount", place]);
  }
});

test("what we pack, GNU tar and Python read; what they pack, we unpack", async () => {
  const { root, files } = scene();
  mkdirSync(join(root, "from"));
  plant(join(root, "from"));
  const archive = await drain(await files.pack("from"));
  for (const [name, argv] of [
    ["gnu", ["tar", "-xpf", "-"]],
    [
      "python",
      [
        "python3",
        "-IS",
        "-c",
        "import sys,tarfile; tarfile.open(fileobj=sys.stdin.buffer, mode='r|').extractall('.')",
      ],
    ],
  ] as const) {
    mkdirSync(join(root, name));
    run([...argv], join(root, name), archive);
    expect(describe(join(root, name))).toEqual(describe(join(root, "from")));
  }
  for (const format of ["gnu", "pax", "ustar"]) {
    // In pax records names are UTF-8 by definition; GNU tar writes others all the same, and the parser loses them.
    if (format === "pax")
      rmSync(Buffer.concat([Buffer.from(`${root}/from/`), Buffer.from([0x66, 0xff, 0xfe])]));
    if (format === "ustar") run(["bash", "-c", `rm -r ${"d".repeat(120)} long-target`], join(root, "from"));
    const theirs = run(["tar", `--format=${format}`, "--exclude=fifo", "-cf", "-", "."], join(root, "from"));
    await fill(await files.unpack(`to-${format}`, true), theirs);
    expect(describe(join(root, `to-${format}`), 1000)).toEqual(describe(join(root, "from"), 1000));
  }
});

test("a folder that an archive names twice gets the mode and time that it names last, as GNU tar has it", async () => {
  const { root, files } = scene();
  const from = join(root, "from");
  mkdirSync(join(from, "d/e"), { recursive: true });
  const add = (name: string, mode: number, time: number): void => {
    chmodSync(join(from, name), mode);
    utimesSync(join(from, name), time, time);
    run(["tar", "--no-recursion", "-rf", "../all.tar", name], from);
  };
  add("d", 0o700, 1_400_000_000);
  add("d/e", 0o711, 1_500_000_000);
  add("./d/e", 0o750, 1_500_000_001);
  add("d", 0o755, 1_400_000_001);
  add(".", 0o701, 1_300_000_000);
  add(".", 0o705, 1_300_000_001);
  mkdirSync(join(root, "theirs"));
  const archive = readFileSync(join(root, "all.tar"));
  run(["tar", "-xpf", "-", "-C", "theirs"], root, archive);
  await fill(await files.unpack("ours", false), archive);
  expect(describe(join(root, "ours"))).toEqual(describe(join(root, "theirs")));
  const top = lstatSync(join(root, "ours"));
  expect([top.mode & 0o7777, top.mtimeMs]).toEqual([0o705, 1_300_000_001_000]);
});

test("one file is packed under its own name, an empty folder as an empty archive", async () => {
  const { root, files } = scene();
  mkdirSync(join(root, "none"));
  writeFileSync(join(root, "f"), "content");
  symlinkSync("f", join(root, "link"));
  expect(run(["tar", "-tf", "-"], root, await drain(await files.pack("./f"))).toString()).toBe("f\n");
  expect(run(["tar", "-xOf", "-"], root, await drain(await files.pack("link"))).toString()).toBe("content");
  expect(await drain(await files.pack("none"))).toEqual(Buffer.alloc(1024));
  expect(await reasonOf(files.pack("/dev/null"))).toBe("EINVAL");
  expect(await reasonOf(files.pack("nope"))).toBe("ENOENT");
});

interface Planned {
  type: "file" | "link" | "symlink" | "dir";
  name: string;
  target?: string;
  content?: string;
}

function archiveOf(...entries: Planned[]): Buffer {
  const parts = entries.flatMap(({ type, name, target, content = "" }) => [
    tarHeader({
      type,
      name: Buffer.from(name),
      ...(target === undefined ? {} : { target: Buffer.from(target) }),
      mode: type === "dir" ? 0o755 : 0o644,
      uid: 0,
      gid: 0,
      size: content.length,
      mtimeMs: 1_700_000_000_000,
    }),
    Buffer.from(content),
    Buffer.alloc((512 - (content.length % 512)) % 512),
  ]);
  return Buffer.concat([...parts, Buffer.alloc(1024)]);
}

test.each<[string, ...Planned[]]>([
  ["by ..", { type: "file", name: "../out/f", content: "evil" }],
  ["by a .. in the middle", { type: "file", name: "a/../../out/f", content: "evil" }],
  ["by an absolute name", { type: "file", name: "/tmp/sandmesh-evil", content: "evil" }],
  [
    "through a symlink of its own",
    { type: "symlink", name: "s", target: "../out" },
    { type: "file", name: "s/f", content: "evil" },
  ],
  [
    "through a folder entry on its symlink",
    { type: "symlink", name: "s", target: "../out" },
    { type: "dir", name: "s" },
  ],
  ["through a symlink that was there", { type: "file", name: "there/f", content: "evil" }],
  [
    "through a hard link to ..",
    { type: "link", name: "h", target: "../out/secret" },
    { type: "file", name: "h", content: "evil" },
  ],
  [
    "through a hard link over a symlink",
    { type: "symlink", name: "s", target: "../out" },
    { type: "link", name: "h", target: "s/secret" },
  ],
])("no entry leaves the folder %s", async (_, ...entries) => {
  const { root, files } = scene();
  mkdirSync(join(root, "in"));
  mkdirSync(join(root, "out"));
  writeFileSync(join(root, "out/secret"), "untouched");
  symlinkSync("../out", join(root, "in/there"));
  const reason = await reasonOf((async () => fill(await files.unpack("in", false), archiveOf(...entries)))());
  expect(["EINVAL", "ENOTDIR", "ELOOP"]).toContain(reason ?? "");
  expect(readdirSync(join(root, "out"))).toEqual(["secret"]);
  expect(readFileSync(join(root, "out/secret"), "utf8")).toBe("untouched");
  expect(lstatSync(join(root, "out/secret")).nlink).toBe(1);
  expect(existsSync("/tmp/sandmesh-evil")).toBe(false);
  expect(drafts(root)).toEqual([]);
  expect(openBelow(root)).toEqual([]);
});

test("a file entry replaces a symlink and another name of a file, and writes through neither", async () => {
  const { root, files } = scene();
  mkdirSync(join(root, "in"));
  writeFileSync(join(root, "secret"), "untouched");
  symlinkSync("../secret", join(root, "in/link"));
  linkSync(join(root, "secret"), join(root, "in/hard"));
  const archive = archiveOf(
    { type: "file", name: "link", content: "new" },
    { type: "file", name: "hard", content: "new" },
  );
  await fill(await files.unpack("in", false), archive);
  expect(readFileSync(join(root, "secret"), "utf8")).toBe("untouched");
  expect(lstatSync(join(root, "in/link")).isFile()).toBe(true);
  expect(readFileSync(join(root, "in/hard"), "utf8")).toBe("new");
});

test.each<[string, (archive: Buffer) => Buffer]>([
  ["cut in a header", (archive) => archive.subarray(0, 100)],
  ["cut in a file", (archive) => archive.subarray(0, 1200)],
  [
    "with a broken checksum",
    (archive) => Buffer.concat([archive.subarray(0, 10), Buffer.from("x"), archive.subarray(11)]),
  ],
  [
    "that is a gzip",
    (archive) =>
      Buffer.from(
        Bun.gzipSync(
          new Uint8Array(Buffer.concat([archive, Buffer.from(crypto.getRandomValues(new Uint8Array(4096)))])),
        ),
      ),
  ],
  ["of text", () => Buffer.from("hello ".repeat(1000))],
])("an archive %s is told, and leaves nothing half", async (_, spoil) => {
  const { root, files } = scene();
  const archive = spoil(archiveOf({ type: "file", name: "f", content: "x".repeat(2000) }));
  expect(await reasonOf((async () => fill(await files.unpack("in", false), archive))())).toBe("EINVAL");
  expect(readdirSync(join(root, "in"))).toEqual([]);
  expect(openBelow(root)).toEqual([]);
});

test("an aborted unpack leaves whole files and no draft", async () => {
  const { root, files } = scene();
  const archive = archiveOf(
    { type: "file", name: "whole", content: "w".repeat(100) },
    { type: "file", name: "half", content: "h".repeat(5000) },
  );
  const sink = await files.unpack("in", false);
  await sink.write(archive.subarray(0, 3000));
  await sink.abort();
  expect(drafts(root)).toEqual([]);
  expect(existsSync(join(root, "in/half"))).toBe(false);
  expect(openBelow(root)).toEqual([]);
});

test("a folder in the way of a file is refused by name", async () => {
  const { root, files } = scene();
  mkdirSync(join(root, "in/f/g"), { recursive: true });
  const archive = archiveOf({ type: "file", name: "f", content: "x" });
  expect(await reasonOf((async () => fill(await files.unpack("in", false), archive))())).toBe("EISDIR");
  expect(drafts(root)).toEqual([]);
});
