// Archives whose sparse entries lie about their regions, in each form that GNU tar has had.
import { MAX_REGIONS } from "../../broker/contract/tar/sparse.ts";

/** Gives a header the sum that it is to have. */
export function sum(block: Buffer): void {
  block.write("        ", 148);
  const bytes = block.reduce((all, byte) => all + byte, 0);
  block.write(`${bytes.toString(8).padStart(6, "0")}\0 `, 148);
}

/** A header as GNU tar's, with its sum. */
function header(name: string, flag: string, size: number, more: (block: Buffer) => void = () => {}): Buffer {
  const block = Buffer.alloc(512);
  block.write(name);
  block.write("0000644\0", 100);
  block.write(`${size.toString(8).padStart(11, "0")}\0`, 124);
  block.write("00000000000\0", 136);
  block.write(flag, 156);
  block.write("ustar  \0", 257);
  more(block);
  sum(block);
  return block;
}
const octal = (value: number): string => `${value.toString(8).padStart(11, "0")}\0`;
const blockOf = (text: string): Buffer =>
  Buffer.concat([Buffer.from(text), Buffer.alloc((512 - (text.length % 512)) % 512)]);
export const END = Buffer.alloc(1024);

/** An old form's entry of four regions at most. */
function old(regions: [number, number][], size: number, stored: number, isMore = false): Buffer {
  return header("evil", "S", stored, (block) => {
    for (const [i, [offset, length]] of regions.entries()) {
      block.write(octal(offset), 386 + 24 * i);
      block.write(octal(length), 398 + 24 * i);
    }
    block[482] = isMore ? 1 : 0;
    block.write(octal(size), 483);
  });
}

function pax(records: [string, string][], content: Buffer, size = content.length): Buffer {
  const lines = records.map(([key, value]) => {
    const rest = ` ${key}=${value}\n`;
    let length = rest.length + 1;
    while (String(length).length + rest.length !== length) length = String(length).length + rest.length;
    return `${length}${rest}`;
  });
  const text = lines.join("");
  return Buffer.concat([
    header("PaxHeaders/x", "x", text.length),
    blockOf(text),
    header("evil", "0", size),
    content,
  ]);
}
const old01 = (map: string, size: string, content: string): Buffer =>
  pax(
    [
      ["GNU.sparse.size", size],
      ["GNU.sparse.map", map],
    ],
    blockOf(content),
    content.length,
  );
const new10 = (lines: string, size: string): Buffer => {
  const block = blockOf(lines);
  return pax(
    [
      ["GNU.sparse.major", "1"],
      ["GNU.sparse.minor", "0"],
      ["GNU.sparse.realsize", size],
    ],
    block,
  );
};
const some = Buffer.alloc(512, "x");

/** Parts of an archive that all name the entry "evil", by what is wrong with it; without the END. */
export const HOSTILE: Record<string, Buffer[]> = {
  "regions that overlap": [
    old(
      [
        [0, 20],
        [10, 20],
      ],
      100,
      40,
    ),
    some,
  ],
  "regions in no order": [
    old(
      [
        [50, 10],
        [0, 10],
      ],
      100,
      20,
    ),
    some,
  ],
  "a region beyond the size": [old([[90, 20]], 100, 20), some],
  "a length that is no number": [
    header("evil", "S", 10, (block) => {
      block.write("zzzzzzzzzzz\0", 386);
      block.write(octal(10), 398);
      block.write(octal(100), 483);
    }),
    some,
  ],
  "a negative offset": [
    header("evil", "S", 10, (block) => {
      block.fill(0xff, 386, 398);
      block.write(octal(10), 398);
      block.write(octal(100), 483);
    }),
    some,
  ],
  "a size beyond all": [
    header("evil", "S", 0, (block) => {
      block[483] = 0x80;
      block.fill(0xff, 484, 495);
    }),
  ],
  "more content than regions": [old([[0, 10]], 100, 512), some],
  "less content than regions": [old([[0, 600]], 1000, 512), some],
  "regions without end": [
    old([[0, 0]], 100, 0, true),
    ...Array.from({ length: MAX_REGIONS / 21 + 1 }, () => {
      const block = Buffer.alloc(512);
      for (let i = 0; i < 21; i++) block.write(octal(0) + octal(0), 24 * i);
      block[504] = 1;
      return block;
    }),
  ],
  "overlaps in 0.1": [old01("0,5,3,5", "100", "0123456789")],
  "a minus in 0.1": [old01("-5,5", "100", "01234")],
  "half a region in 0.1": [old01("0,5,9", "100", "01234")],
  "no size in 0.1": [old01("0,5", "", "01234")],
  "a fraction in 0.1": [old01("0.5,5", "100", "01234")],
  "more than all bytes in 0.1": [old01("9007199254740991,5", "9007199254740993", "01234")],
  "half a region in 0.0": [
    pax(
      [
        ["GNU.sparse.size", "9"],
        ["GNU.sparse.offset", "0"],
        ["GNU.sparse.offset", "0"],
      ],
      some,
    ),
  ],
  "a number to another base in 0.0": [
    pax(
      [
        ["GNU.sparse.size", "1000"],
        ["GNU.sparse.offset", "0x10"],
        ["GNU.sparse.numbytes", "512"],
      ],
      some,
    ),
  ],
  "a huge count in 1.0": [new10("999999999999\n0\n5\n", "100")],
  "a count that is none in 1.0": [new10("many\n", "100")],
  "a negative region in 1.0": [new10("1\n-1\n5\n", "100")],
  "a line without end in 1.0": [new10("1".repeat(511), "100")],
  "fewer numbers than said in 1.0": [new10("3\n0\n5\n", "100")],
  "another version": [
    pax(
      [
        ["GNU.sparse.major", "2"],
        ["GNU.sparse.minor", "0"],
      ],
      some,
    ),
  ],
};
