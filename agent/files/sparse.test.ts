import { afterEach, beforeAll, describe, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { open } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { FileError } from "../../broker/contract/index.ts";
import { seeded } from "../../broker/contract/testing.ts";
import type { Files } from "../../broker/endpoint/executor.ts";
import { testEngine } from "../exec/testing.ts";
import type { Engine } from "../native/engine.ts";
import { createFiles } from "./files.ts";
import { regionsOf } from "./holes.ts";
import { END, HOSTILE, sum } from "./hostile-sparse.testing.ts";
import { drafts, drain, fill } from "./testing.ts";

const made: string[] = [];
let engine: Engine;
beforeAll(async () => {
  engine = await testEngine();
});
afterEach(() => {
  for (const path of made.splice(0)) rmSync(path, { recursive: true, force: true });
});

function scene(): { root: string; files: Files } {
  const root = mkdtempSync(join(tmpdir(), "sparse-test-"));
  made.push(root);
  return { root, files: createFiles({ cwd: root, folders: engine.folders }) };
}

/** Runs a program in `cwd`; its output. */
function run(cwd: string, argv: string[], stdin?: Uint8Array): Buffer {
  const done = Bun.spawnSync(argv, { cwd, stderr: "pipe", ...(stdin && { stdin }) });
  if (done.exitCode !== 0) throw new Error(`${argv.join(" ")}: ${done.stderr}`);
  return done.stdout;
}

const MiB = 1024 * 1024;
const MAKE = `
import os, sys
def make(path, size, parts):
    with open(path, "wb") as file:
        for at, data in parts:
            file.seek(at)
            file.write(data)
        file.truncate(size)
os.makedirs("d/sub", exist_ok=True)
make("d/middle", 64 << 20, [(5 << 20, b"x" * 70000), (40 << 20, b"y")])
make("d/begin", 9 << 20, [(0, b"begin")])
make("d/end", 9 << 20, [((9 << 20) - 3, b"end")])
make("d/sub/empty", 3 << 20, [])
make("d/sub/" + "l" * 120, 4 << 20, [(1 << 20, b"long name")])
make("d/sub/many", 8 << 20, [(at, b"z") for at in range(0, 8 << 20, 128 << 10)])
make("d/whole", 5000, [(0, b"w" * 5000)])
open("d/none", "w").close()
`;
const NAMES = ["middle", "begin", "end", "sub/empty", `sub/${"l".repeat(120)}`, "sub/many", "whole", "none"];

/** Prints where each file has data. Its count of blocks would not do: ext4 adds those of its own map when it writes it. */
const REGIONS = `
import errno, os, sys
for path in sys.argv[1:]:
    file, end, regions = os.open(path, os.O_RDONLY), 0, []
    try:
        while True:
            at = os.lseek(file, end, os.SEEK_DATA)
            end = os.lseek(file, at, os.SEEK_HOLE)
            regions.append((at, end))
    except OSError as error:
        if error.errno != errno.ENXIO: raise
    print(path, regions)
`;
const regionsIn = (folder: string): string => run(folder, ["python3", "-c", REGIONS, ...NAMES]).toString();

function same(one: string, other: string): void {
  for (const name of NAMES)
    expect([name, readFileSync(join(other, name)).equals(readFileSync(join(one, name)))]).toEqual([
      name,
      true,
    ]);
  expect(regionsIn(other)).toBe(regionsIn(one));
}

const FORMATS = {
  "GNU tar's old form": ["--format=gnu", "-S"],
  "GNU tar's older form": ["--format=oldgnu", "-S"],
  "pax 0.0": ["--format=posix", "--sparse-version=0.0", "-S"],
  "pax 0.1": ["--format=posix", "--sparse-version=0.1", "-S"],
  "pax 1.0": ["--format=posix", "--sparse-version=1.0", "-S"],
};

describe("unpacking", () => {
  test.each(Object.entries(FORMATS))("holes of %s become holes", async (_name, format) => {
    const { root, files } = scene();
    run(root, ["python3", "-c", MAKE]);
    const archive = run(root, ["tar", ...format, "-C", "d", "-c", "."]);
    expect(archive.length).toBeLessThan(2 * MiB);
    for (const size of [64 * 1024, 1000]) {
      await fill(await files.unpack(`to-${size}`, false), archive, size);
      same(join(root, "d"), join(root, `to-${size}`));
    }
  });

  test("what stands behind a sparse entry is unpacked, too, with its own name and time", async () => {
    const { root, files } = scene();
    run(root, ["python3", "-c", MAKE]);
    run(root, ["touch", "-d", "@1700000000.5", "d/middle", "d/whole"]);
    for (const format of Object.values(FORMATS)) {
      const archive = run(root, ["tar", ...format, "-C", "d", "-c", "middle", "whole", "sub"]);
      await fill(await files.unpack("to", false), archive);
      expect(statSync(join(root, "to/whole")).mtimeMs).toBeGreaterThanOrEqual(1_700_000_000_000);
      expect(Math.floor(statSync(join(root, "to/middle")).mtimeMs / 1000)).toBe(1_700_000_000);
      expect(readFileSync(join(root, "to/sub/many")).equals(readFileSync(join(root, "d/sub/many")))).toBe(
        true,
      );
      rmSync(join(root, "to"), { recursive: true });
    }
  });
});

describe("packing", () => {
  test("holes stay holes for GNU tar, for Python's tarfile and for the daemon itself", async () => {
    const { root, files } = scene();
    run(root, ["python3", "-c", MAKE]);
    const archive = await drain(await files.pack("d"));
    expect(archive.length).toBeLessThan(2 * MiB);
    writeFileSync(join(root, "a.tar"), archive);
    mkdirSync(join(root, "gnu"));
    run(root, ["tar", "-xf", "a.tar", "-C", "gnu"]);
    same(join(root, "d"), join(root, "gnu"));
    run(root, ["python3", "-c", 'import tarfile; tarfile.open("a.tar").extractall("python")']);
    for (const name of NAMES)
      expect(readFileSync(join(root, "python", name)).equals(readFileSync(join(root, "d", name)))).toBe(true);
    await fill(await files.unpack("own", false), archive);
    same(join(root, "d"), join(root, "own"));
  });

  test("10 GB of hole with 1 MB of data are little more than 1 MB", async () => {
    const { root, files } = scene();
    const code = 'f = open("big", "wb"); f.seek(6 << 30); f.write(b"d" * (1 << 20)); f.truncate(10 << 30)';
    run(root, ["python3", "-c", code]);
    const archive = await drain(await files.pack("big"));
    expect(archive.length).toBeLessThan(MiB + 8192);
    await fill(await files.unpack("to", false), archive);
    const { size, blocks } = statSync(join(root, "to/big"));
    expect(size).toBe(10 * 1024 ** 3);
    expect(blocks * 512).toBeLessThan(2 * MiB);
    expect(await files.stat("big", true)).toMatchObject({ size, allocated_bytes: blocks * 512 });
  });

  test("of a file in more pieces than an archive's map may have the rest goes whole", async () => {
    const { root } = scene();
    run(root, ["python3", "-c", MAKE]);
    const path = join(root, "d/sub/many");
    const file = await open(path);
    try {
      const all = await regionsOf(file.fd, await file.stat(), engine.folders);
      const few = await regionsOf(file.fd, await file.stat(), engine.folders, 6);
      expect(all?.length).toBe(65);
      expect(few?.slice(0, 5)).toEqual(all?.slice(0, 5));
      expect(few?.length).toBe(6);
      const [last, end] = [few?.[5], (all?.[4]?.offset ?? 0) + (all?.[4]?.length ?? 0)];
      expect(last).toEqual({ offset: end, length: 8 * MiB - end });
    } finally {
      await file.close();
    }
  });
});

describe("a hostile archive", () => {
  test.each(Object.entries(HOSTILE))(
    "of %s is refused by an error that names the entry",
    async (_name, parts) => {
      const { root, files } = scene();
      const sink = await files.unpack("to", false);
      const error = await fill(sink, Buffer.concat([...parts, END]), 700).catch((thrown: unknown) => thrown);
      expect(error).toBeInstanceOf(FileError);
      expect(error).toMatchObject({ reason: "EINVAL", message: expect.stringContaining('"evil"') });
      expect(drafts(root)).toEqual([]);
    },
  );

  test("whatever is changed in one, the answer is a FileError or files", async () => {
    const { root, files } = scene();
    run(root, ["python3", "-c", MAKE.replace('make("d/middle"', 'make("d/sub/m"')]);
    const random = seeded(4711);
    const pick = (below: number): number => Math.floor(random() * below);
    for (const format of Object.values(FORMATS)) {
      const names = ["begin", "sub/many", "sub/empty", "whole"];
      const good = run(root, ["tar", ...format, "-C", "d", "-c", ...names]);
      for (let round = 0; round < 60; round++) {
        let bad = Buffer.from(good);
        for (let changes = 1 + pick(4); changes > 0; changes--) {
          const at = pick(Math.min(bad.length, 16 * 1024));
          const kind = pick(4);
          if (kind === 0) bad[at] = pick(256);
          else if (kind === 1) bad.write("9999999999", at, "latin1");
          else if (kind === 2) bad = Buffer.concat([bad.subarray(0, at), bad.subarray(at + pick(600))]);
          else bad = Buffer.concat([bad.subarray(0, at), bad.subarray(pick(bad.length)), bad.subarray(at)]);
        }
        // Sums that fit again, so that it gets beyond them.
        for (let at = 0; at + 512 <= bad.length; at += 512) {
          const block = bad.subarray(at, at + 512);
          if (block.toString("latin1", 257, 262) === "ustar") sum(block);
        }
        const sink = await files.unpack("to", false);
        const thrown = await fill(sink, bad, 1 + pick(4000)).then(
          () => undefined,
          (error: unknown) => error,
        );
        if (thrown !== undefined) expect(thrown).toBeInstanceOf(FileError);
        rmSync(join(root, "to"), { recursive: true, force: true });
      }
    }
  }, 120_000);
});
