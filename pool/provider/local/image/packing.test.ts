// How a layer is packed: what is whole is taken, whatever it is compressed with and whatever tar wrote it; what is not is
// the image's fault, for good, and named.
import { afterEach, beforeEach, describe, expect, setDefaultTimeout, test } from "bun:test";
import { mkdir, readdir } from "node:fs/promises";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { busyboxEntries, type Entry, makeOciLayout, makeTar } from "../../../../test/images/images.ts";
import { findPython } from "../python.ts";
import { Bench } from "../testing.ts";

setDefaultTimeout(60_000);

const joined = (...parts: Uint8Array[]) => Buffer.concat(parts);
const piped = (...command: string[]) => {
  return (tar: Buffer) => {
    const { stdout, stderr, exitCode } = Bun.spawnSync(command, { stdin: tar });
    if (exitCode !== 0) throw new Error(`${command[0]}: ${stderr}`);
    return Buffer.from(stdout);
  };
};
const PYTHON = await findPython();
/** By the module of Python's: not every machine has the programs. */
const packedBy = (module: string) =>
  piped(
    PYTHON,
    "-c",
    `import sys, ${module}; sys.stdout.buffer.write(${module}.compress(sys.stdin.buffer.read()))`,
  );
const xz = packedBy("lzma");
const bzip2 = packedBy("bz2");
const zstd = piped("zstd", "-qc", "--check");
/** `data` with its byte at `from` (from the end where negative) turned over. */
function spoiled(data: Uint8Array, from: number): Buffer {
  const copy = Buffer.from(data);
  const at = from < 0 ? copy.length + from : from;
  copy[at] = (copy[at] ?? 0) ^ 0x55;
  return copy;
}
const cut = (data: Uint8Array): Buffer => Buffer.from(data).subarray(0, data.length - 9);

describe.if(process.getuid?.() === 0)("packed layers", () => {
  let bench: Bench;
  let base: Entry[];
  const at = (name: string) => join(bench.folder, name);

  beforeEach(async () => {
    bench = await Bench.make();
    base = [...(await busyboxEntries()), { name: "last", content: "of all" }];
  });
  afterEach(async () => {
    await bench[Symbol.asyncDispose]();
  });

  const refusal = async (parts: Parameters<typeof makeOciLayout>[1]) => {
    await makeOciLayout(at("oci"), parts);
    const refused = await bench.create("sb-refused", { image: at("oci") }).catch((error: unknown) => error);
    expect(refused).toMatchObject({ code: "image_error", retryable: false, field: "spec.image" });
    expect(await readdir(join(bench.stateDir, "layers"))).toEqual([]);
    return String(refused);
  };

  const whole: [string, (tar: Buffer) => Uint8Array][] = [
    ["gzip", gzipSync],
    ["gzip in two members", (tar) => joined(gzipSync(tar.subarray(0, 5000)), gzipSync(tar.subarray(5000)))],
    ["zstd", zstd],
    [
      "zstd after a frame to skip",
      (tar) => joined(Buffer.from("502a4d180200000078790000", "hex").subarray(0, 10), zstd(tar)),
    ],
    ["xz", xz],
    ["bzip2", bzip2],
    ["nothing", (tar) => tar],
  ];
  for (const [what, pack] of whole) {
    test(`${what}: taken`, async () => {
      await makeOciLayout(at("oci"), { layers: [base], pack });
      expect(await bench.probe("sb-a", "cat /last", { image: at("oci") })).toBe("of all");
    });
  }

  const broken: [string, (tar: Buffer) => Uint8Array, RegExp][] = [
    ["gzip with a bad checksum", (tar) => spoiled(gzipSync(tar), -6), /CRC check failed/],
    ["gzip with a bad length", (tar) => spoiled(gzipSync(tar), -2), /Incorrect length/],
    [
      "gzip with a bad middle",
      (tar) => spoiled(gzipSync(tar), 5000),
      /cannot be read: |CRC check failed|unpack to/,
    ],
    ["gzip that was cut off", (tar) => cut(gzipSync(tar)), /ended before the end-of-stream/],
    [
      "gzip and then something else",
      (tar) => joined(gzipSync(tar), Buffer.from("garbage")),
      /Not a gzipped file/,
    ],
    ["zstd with a bad checksum", (tar) => spoiled(zstd(tar), -1), /checksum/],
    ["zstd that was cut off", (tar) => cut(zstd(tar)), /cannot be read: /],
    ["zstd and then something else", (tar) => joined(zstd(tar), Buffer.from("garbage")), /cannot be read: /],
    ["xz with a bad middle", (tar) => spoiled(xz(tar), 5000), /cannot be read: /],
    ["bzip2 with a bad middle", (tar) => spoiled(bzip2(tar), 5000), /cannot be read: /],
  ];
  for (const [what, pack, words] of broken) {
    test(`${what}: refused, by the layer's name`, async () => {
      const said = await refusal({ layers: [base], pack });
      expect(said).toMatch(/layer (sha256:|blobs)/);
      expect(said).toMatch(words);
    });
  }

  test("a layer of no bytes, and one of none but a tar's end", async () => {
    await makeOciLayout(at("oci"), { layers: [base, Buffer.alloc(0), Buffer.alloc(1024)] });
    expect(await bench.probe("sb-a", "cat /last", { image: at("oci") })).toBe("of all");
  });

  const small: Entry[] = [
    { name: "one", content: "1" },
    { name: "two", content: "2" },
  ];
  const tars: [string, (tar: Buffer) => Buffer, RegExp][] = [
    ["no header in its middle", (tar) => spoiled(tar, 1030), /cannot be read: bad checksum/],
    ["half a header", (tar) => tar.subarray(0, 1024 + 200), /cannot be read: truncated header/],
    ["a file's content cut off", (tar) => tar.subarray(0, 512), /cannot be read: unexpected end/],
    ["an entry of an unknown type", (tar) => retyped(tar, "Z"), /entry 'one' is of an unknown type/],
  ];
  for (const [what, spoil, words] of tars) {
    test(`a tar with ${what} is refused, and does not end there`, async () => {
      expect(await refusal({ layers: [spoil(await makeTar(small))] })).toMatch(words);
    });
  }

  test("owners and times that there are none of are refused by the entry's name", async () => {
    expect(await refusal({ layers: [await paxTar("uid", "4294967295")] })).toContain(
      "'f' is of owner 4294967295:0",
    );
    expect(await refusal({ layers: [await paxTar("mtime", "9".repeat(30))] })).toContain(
      "entry 'f' cannot be made",
    );
    expect(await refusal({ layers: [await paxTar("mtime", "nan")] })).toContain(
      "entry 'f' has the time 'nan'",
    );
    const bad = await paxTar("SCHILY.xattr.security.capability", "no capabilities");
    expect(await refusal({ layers: [bad] })).toContain("'f' cannot have the attribute security.capability");
    const long = await paxTar("SCHILY.xattr.user.long", "x".repeat(100_000));
    expect(await refusal({ layers: [long] })).toContain(
      "'f' cannot have the attribute user.long of 100000 bytes",
    );
  });

  test("capabilities of programs are the image's, attributes that would lead overlayfs are not", async () => {
    // cap_net_raw+ep, as setcap writes it.
    const value = `01000002002${"0".repeat(29)}`;
    const binary = Buffer.from(value, "hex").toString("latin1");
    const layers = [
      base,
      await paxTar("SCHILY.xattr.security.capability", binary),
      await paxTar("SCHILY.xattr.trusted.overlay.redirect", "/etc", "g"),
    ];
    await makeOciLayout(at("oci"), { layers });
    await bench.create("sb-a", { image: at("oci") });
    const { pid } = await bench.first("sb-a");
    const script = `import os; print(os.getxattr("/proc/${pid}/root/f", "security.capability").hex()); print(os.listxattr("/proc/${pid}/root/g"))`;
    expect(await Bun.$`${PYTHON} -c ${script}`.text()).toBe(`${value}\n[]\n`);
  });

  for (const format of [
    "gnu",
    "pax --sparse-version=0.0",
    "pax --sparse-version=0.1",
    "pax --sparse-version=1.0",
  ]) {
    test(`a sparse file of tar's format ${format} keeps its content, and its holes`, async () => {
      await mkdir(at("sparse"));
      await Bun.$`truncate -s 200M f && printf start | dd of=f conv=notrunc status=none && printf middle | dd of=f conv=notrunc seek=100000000 bs=1 status=none`.cwd(
        at("sparse"),
      );
      const options = `--format=${format}`.split(" ");
      const tar = await Bun.$`tar -cS ${options} f`.cwd(at("sparse")).arrayBuffer();
      await makeOciLayout(at("oci"), { layers: [base, Buffer.from(tar)] });
      const script =
        "stat -c %s /f; stat -c %b /f; head -c 5 /f; dd if=/f bs=1 skip=100000000 count=6 2>/dev/null";
      const [size, blocks, text] = (await bench.probe("sb-a", script, { image: at("oci") })).split("\n");
      expect([size, text]).toEqual([String(200 * 1024 * 1024), "startmiddle"]);
      expect(Number(blocks)).toBeLessThan(1000);
    });
  }

  test("a docker-archive's layer that is not what its configuration says is refused", async () => {
    await makeOciLayout(at("oci"), {
      layers: [base],
      gzip: false,
      pack: (tar) => joined(tar, Buffer.alloc(512)),
    });
    const refused = bench.create("sb-refused", { image: at("oci") });
    await expect(refused).rejects.toThrow(/does not unpack to/);
  });
});

/** The tar with its first entry of that type. */
function retyped(tar: Buffer, type: string): Buffer {
  const copy = Buffer.from(tar);
  copy.write(type, 156, "latin1");
  copy.fill(" ", 148, 156);
  const sum = copy.subarray(0, 512).reduce((all, byte) => all + byte, 0);
  copy.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return copy;
}

/** A tar of an empty file whose pax header says one thing; `value` by its bytes. */
async function paxTar(key: string, value: string, name = "f"): Promise<Buffer> {
  const bytes = Buffer.from(value, "latin1");
  const rest = ` ${key}=`.length + bytes.length + 1;
  let length = rest;
  while (String(length).length + rest !== length) length = String(length).length + rest;
  const record = joined(Buffer.from(`${length} ${key}=`), bytes, Buffer.from("\n"));
  const tar = await makeTar([{ name: "pax", content: record }]);
  const header = retyped(tar, "x").subarray(0, 512 + Math.ceil(record.length / 512) * 512);
  return joined(header, await makeTar([{ name }]));
}
