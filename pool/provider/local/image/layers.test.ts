// Layers upon one another show what applying them in order to one folder gives, by GNU tar and the image-spec's whiteouts
// (test/images/reference.py): the same paths, with the same modes, owners, times, links, attributes and content.
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { copyFile, mkdtemp, readFile, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { BUSYBOX, makeOciLayout } from "../../../../test/images/images.ts";
import { findPython } from "../python.ts";
import { Bench } from "../testing.ts";

setDefaultTimeout(120_000);

interface Entry {
  name: string;
  type?: "file" | "directory" | "symlink" | "link" | "fifo" | "device";
  content?: string;
  linkname?: string;
  mode?: number;
  uid?: number;
  gid?: number;
  mtime?: string;
  xattrs?: Record<string, string>;
}

const REFERENCE = join(import.meta.dir, "../../../../test/images/reference.py");
const reference = async (...args: string[]): Promise<unknown> =>
  JSON.parse(await Bun.$`${await findPython()} -E -s -B ${REFERENCE} ${args}`.text());

let bench: Bench;
beforeAll(async () => {
  bench = await Bench.make({ daemonArgv: ["/.sandmesh/daemon/busybox", "sleep", "1000"] });
  await copyFile(BUSYBOX, join(bench.folder, "busybox"));
});
afterAll(async () => {
  await bench[Symbol.asyncDispose]();
});

/** What a sandbox of these layers has and what it should, or null and why not. */
async function both(
  cases: Entry[][][],
): Promise<{ ours: unknown; theirs: unknown; refused: string | null }[]> {
  const folder = await mkdtemp(join(bench.folder, "cases-"));
  const at = (...names: (string | number)[]) => join(folder, ...names.map(String));
  await writeFile(at("cases.json"), JSON.stringify(cases));
  const verdicts = (await reference("make", at("cases.json"), folder)) as (string | null)[];
  return Promise.all(
    cases.map(async (layers, n) => {
      const tars = await Promise.all(layers.map((_, i) => readFile(at(n, `${i}.tar`))));
      await makeOciLayout(at(n, "image"), { layers: tars });
      const refused = verdicts[n] ?? null;
      const theirs = refused === null ? await reference("list", at(n, "root")) : null;
      return {
        ours: await show(`sb-${basename(folder).slice(-6).toLowerCase()}-${n}`, at(n, "image")),
        theirs,
        refused,
      };
    }),
  );
}

/** Null where it is refused as an image. */
async function show(sandbox: string, image: string): Promise<unknown> {
  try {
    await bench.create(sandbox, { image });
  } catch (error) {
    expect(error).toMatchObject({ code: "image_error", retryable: false });
    return null;
  }
  const found = await reference("list", `/proc/${(await bench.first(sandbox)).pid}/root`);
  await bench.remove(sandbox);
  return found;
}

const dir = (name: string, more: Partial<Entry> = {}): Entry => ({ name, type: "directory", ...more });
const link = (name: string, linkname: string): Entry => ({ name, type: "link", linkname });
const symlink = (name: string, linkname: string): Entry => ({ name, type: "symlink", linkname });
const file = (name: string, content = name, more: Partial<Entry> = {}): Entry => ({ name, content, ...more });

const LOW: Entry[] = [
  dir("open", { mode: 0o1777, mtime: "1100000000.123456789" }),
  dir("shut", { mode: 0o700 }),
  dir("his", { mode: 0o2750, uid: 1000, gid: 1001, xattrs: { "user.of": "him" } }),
  dir("a", { mode: 0o711 }),
  file("a/old"),
  dir("a/deep"),
  file("a/deep/old"),
  dir("real", { mode: 0o750 }),
  file("real/f", "f", { mode: 0o604, uid: 3, gid: 4, mtime: "1234567890.5" }),
  link("real/twin", "real/f"),
  symlink("lnk", "real"),
  symlink("in", "a/deep"),
  file("plain"),
  symlink("dangling", "nowhere/yet"),
];

const cases: [string, Entry[][]][] = [
  [
    "folders without an entry keep what they are below, new ones are root's",
    [LOW, [file("open/x"), file("shut/x"), file("his/x"), file("his/new/x")]],
  ],
  ["such folders two layers up", [LOW, [file("his/x")], [dir("his", { mode: 0o701 })], [file("his/y")]]],
  [
    "the last entry of a folder counts",
    [[dir("d", { mode: 0o755 }), file("d/f"), dir("d", { mode: 0o700, uid: 7, gid: 8, mtime: "1" })]],
  ],
  [
    "the last entry of a file counts",
    [[file("f", "1", { mode: 0o600 }), file("f", "2", { uid: 9, mtime: "2.25" })]],
  ],
  ["a file that is linked and then comes again", [[file("f", "1"), link("g", "f"), file("f", "2")]]],
  ["a folder comes after its content", [[file("d/f"), dir("d", { mode: 0o710, mtime: "5" })]]],
  ["a whiteout, then a folder of that name", [LOW, [file(".wh.a"), dir("a"), file("a/new")]]],
  ["a folder, then a whiteout of its name", [LOW, [dir("a"), file("a/new"), file(".wh.a")]]],
  ["a whiteout, then a folder without an entry", [LOW, [file(".wh.his"), file("his/x")]]],
  ["content of a folder, then a whiteout of it", [LOW, [file("his/x"), file(".wh.his")]]],
  ["a whiteout and a file of that name", [LOW, [file("plain", "new"), file(".wh.plain")]]],
  ["a whiteout of what comes again above", [LOW, [file(".wh.a")], [file("a/x")]]],
  ["a whiteout within a folder that is hidden itself", [LOW, [file(".wh.a"), file("a/deep/.wh.old")]]],
  ["whiteouts of nothing", [LOW, [file(".wh.none"), file("none2/.wh.x"), file("none3/.wh..wh..opq")]]],
  ["a whiteout in a folder without an entry", [LOW, [file("his/.wh.none"), file("a/.wh.old")]]],
  ["an opaque whiteout first", [LOW, [dir("a"), file("a/.wh..wh..opq"), file("a/new")]]],
  ["an opaque whiteout last", [LOW, [dir("a"), file("a/deep/new"), file("a/.wh..wh..opq")]]],
  ["an opaque whiteout in a folder without an entry", [LOW, [file("his/new"), file("his/.wh..wh..opq")]]],
  ["an opaque whiteout in the root", [LOW, [file(".wh..wh..opq"), file("x")]]],
  [
    "an opaque whiteout in the root, last and between",
    [LOW, [file("a/x"), file(".wh..wh..opq")], [file("y")]],
  ],
  ["a folder becomes a file, and that a folder", [LOW, [file("a")], [file("a/x")], [dir("a"), file("a/y")]]],
  ["a folder becomes a file and a folder in one layer", [LOW, [dir("a"), file("a"), dir("a"), file("a/x")]]],
  [
    "a folder of its own layer becomes a link",
    [LOW, [dir("q"), file("q/x"), symlink("q", "a"), file("q/y")]],
  ],
  ["a link of its own layer becomes a folder", [LOW, [symlink("q", "a"), dir("q"), file("q/y")]]],
  ["a file becomes a folder without an entry", [LOW, [file("plain/x")]]],
  ["entries through a lower layer's links", [LOW, [file("lnk/g"), file("in/g"), dir("in/h")]]],
  ["entries through links of their own layer", [LOW, [symlink("q", "his"), file("q/x"), file("q/new/x")]]],
  ["a folder in the place of a link", [LOW, [dir("lnk"), file("lnk/x")]]],
  ["a link that was gone through becomes a folder", [LOW, [file("lnk/x"), dir("lnk"), file("lnk/y")]]],
  ["entries of a folder that a lower whiteout made anew", [LOW, [file(".wh.lnk")], [file("lnk/x")]]],
  ["hard links to files of lower layers", [LOW, [link("h", "real/f"), link("i", "lnk/f")], [link("j", "h")]]],
  ["a hard link to a link", [LOW, [link("h", "lnk")]]],
  ["a hard link to a link of two names", [LOW, [link("lnk2", "lnk")], [link("h", "lnk")]]],
  // Absolute: a walk on this machine finds a folder there.
  [
    "a hard link to a link of two names that leads to a folder",
    [[symlink("usr", "/usr"), link("usr2", "usr")], [link("h", "usr")]],
  ],
  ["a hard link to a file that comes anew", [LOW, [link("h", "real/f"), file("real/f", "new")]]],
  ["a hard link to itself", [LOW, [link("real/f", "real/f"), file("x"), link("x", "x")]]],
  [
    "a device node in the place of a file",
    [
      LOW,
      [
        { name: "plain", type: "device" },
        { name: "n", type: "device" },
      ],
    ],
  ],
  [
    "a fifo, and times before 1970 and with nanoseconds",
    [[{ name: "p", type: "fifo", mtime: "-1.5" }, file("f", "", { mtime: "1.999999999" })]],
  ],
  ["times and owners of symbolic links", [[{ ...symlink("s", "x"), uid: 5, gid: 6, mtime: "77.5" }]]],
  [
    "set-user-id, set-group-id and sticky",
    [[file("u", "", { mode: 0o4755, uid: 8 }), dir("g", { mode: 0o3775, gid: 9 })]],
  ],
  [
    "attributes",
    [
      [
        file("x", "", { mode: 0o444, xattrs: { "user.k": "v\nä\0=" } }),
        dir("d", { xattrs: { "user.d": "" } }),
      ],
    ],
  ],
  [
    "names that are long, or no plain text",
    [
      [
        file("n".repeat(255)),
        file(`${`${"d".repeat(200)}/`.repeat(17)}f`),
        file("a\nb"),
        file("ä"),
        file(" .wh.x"),
      ],
    ],
  ],
];

const impossible: [string, Entry[][]][] = [
  ["a hard link to nothing", [LOW, [link("h", "none")]]],
  ["a hard link to a folder", [LOW, [link("h", "a")]]],
  ["a hard link to what its layer takes away", [LOW, [link("h", "real/f"), file("real/.wh.f")]]],
  ["a file in a file of its own layer", [LOW, [file("f"), file("f/x")]]],
  ["a loop of links", [[symlink("p", "q"), symlink("q", "p"), file("p/x")]]],
];

const SEED = Number(process.env.SANDMESH_TEST_SEED ?? 20);
const CASES = Number(process.env.SANDMESH_TEST_CASES ?? 36);
/** What stands for a link's, a folder's and a file's names alike, so that they meet. */
const NAMES = ["a", "b", "c", "a/b", "a/c", "b/a", "b/c", "a/b/c", "b/a/c", "a/b/c/d"];
const LINKS = ["l", "m", "a/l"];

/** mulberry32: the same numbers for the same seed. */
function randomOf(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32) * below);
  };
}

function randomLayers(random: (below: number) => number): Entry[][] {
  const files: string[] = [];
  return Array.from({ length: 2 + random(4) }, () => {
    const entries = Array.from({ length: 1 + random(6) }, () => randomEntry(random, files));
    // Of what whiteouts take of links, entries through these depend on the order, as where they are not the first.
    const isFirst = ({ name }: Entry) => /(^|\/)\.wh\.([lm]$|\.wh)/.test(name);
    return [...entries.filter(isFirst), ...entries.filter((entry) => !isFirst(entry))];
  });
}

/** `files`: what had a name before, and may be linked to. */
function randomEntry(random: (below: number) => number, files: string[]): Entry {
  const pick = <T>(from: readonly T[]): T => from[random(from.length)] as T;
  const through = () => (random(6) === 0 ? `${pick(LINKS)}/${pick(["a", "c", "x"])}` : pick(NAMES));
  const attributes = {
    mode: pick([0o755, 0o700, 0o711, 0o1777, 0o2775, 0o4750]),
    uid: pick([0, 0, 1, 1000]),
    gid: pick([0, 0, 2, 1000]),
    mtime: `${1_000_000_000 + random(1000)}.${random(1_000_000_000)}`,
    ...(random(4) === 0 ? { xattrs: { "user.n": String(random(10)) } } : {}),
  };
  const kind = random(20);
  if (kind < 6) {
    // Mostly not what others have as their folder.
    const name = random(6) === 0 ? through() : pick(["c", "a/c", "b/c", "a/b/x", "b/a/c", "l/x", "m/a"]);
    files.push(name);
    return file(name, String(random(1000)), attributes);
  }
  if (kind < 11) return dir(random(8) === 0 ? pick(LINKS) : through(), attributes);
  if (kind < 13) return { ...symlink(pick(LINKS), pick(["a", "b", "a/b", "b/a", "m"])), mtime: "5.5" };
  if (kind < 15 && files.length > 0) return link(pick(["h", "a/h", "l/h", "c", "b/c"]), pick(files));
  if (kind < 16) return { name: pick(NAMES), type: pick(["fifo", "device"] as const), ...attributes };
  const name = pick([...NAMES, ...LINKS]);
  if (kind < 17) return file(`${pick(["", "a/", "b/", "a/b/"])}.wh..wh..opq`, "");
  return file(name.replace(/[^/]*$/, ".wh.$&"), "");
}

describe("layers", () => {
  for (const [what, layers] of cases) {
    test(what, async () => {
      const [found] = await both([layers]);
      expect(found?.refused).toBeNull();
      expect(found?.ours).toEqual(found?.theirs);
    });
  }

  for (const [what, layers] of impossible) {
    test(`${what} is the image's fault`, async () => {
      const [found] = await both([layers]);
      expect(found?.refused).toBeString();
      expect(found?.ours).toBeNull();
    });
  }

  test("random ones", async () => {
    const random = randomOf(SEED);
    const found = [];
    for (let n = 0; n < CASES; n += 6) {
      found.push(...(await both(Array.from({ length: 6 }, () => randomLayers(random)))));
    }
    for (const [n, { ours, theirs }] of found.entries()) expect([n, ours]).toEqual([n, theirs]);
    // Most are to be compared, and some refused.
    const refused = found.filter((one) => one.refused !== null).length;
    expect(refused).toBeGreaterThan(0);
    expect(refused).toBeLessThan(CASES / 2);
  });
});
