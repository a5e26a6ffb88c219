// An archive on its way to the reader, in which sparse entries of GNU tar's older forms become those of pax 0.1: the type `S`,
// whose map stands in the header and in blocks behind it that are no content, and pax 0.0, which says one key many times.
// All else goes through as it is; what is no archive the reader tells. Pure.
import {
  BLOCK_BYTES,
  checksumOf,
  headerNumber,
  paddedTo,
  paxHeader,
  paxRecord,
  paxRecords,
  sealed,
} from "./header.ts";
import { checkCount, type Region, SPARSE, sparseFault, wholeOf } from "./sparse.ts";

/** Of a header that says something of the next one; the reader refuses longer ones. */
const MAX_EXTRA_BYTES = 4 * 1024 * 1024;
const IN_HEADER = { at: 386, count: 4, more: 482, size: 483 } as const;
const IN_BLOCK = { at: 0, count: 21, more: 504 } as const;
const REGION_BYTES = 24;

const FLAG = { pax: "x", global: "g", name: "L", link: "K", sparse: "S", folder: "5" } as const;

/** An old form's entry whose map is being read. */
interface Old {
  header: Buffer;
  name: string;
  map: Region[];
}

export class GnuSparse {
  /** Of the entry that goes through. */
  #left = 0;
  #parts: Buffer[] = [];
  #have = 0;
  #want = BLOCK_BYTES;
  /** What is to be done with what is gathered. */
  #take: (gathered: Buffer, out: Uint8Array[]) => void = (block, out) => this.#header(block, out);
  #isBroken = false;
  /** A pax header that waits for its entry: its blocks, and records. */
  #pax: { blocks: Buffer; records: [key: string, value: Buffer][] } | undefined;
  #longName: string | undefined;

  /** What the reader is to get for it. Throws FileError. */
  push(data: Uint8Array): Uint8Array[] {
    const out: Uint8Array[] = [];
    for (let at = 0; at < data.length; ) {
      if (this.#isBroken) {
        out.push(data.subarray(at));
        break;
      }
      if (this.#left > 0) {
        const part = data.subarray(at, at + this.#left);
        give(out, part);
        this.#left -= part.length;
        at += part.length;
        continue;
      }
      const part = data.subarray(at, at + this.#want - this.#have);
      at += part.length;
      // Copied where more is to come: who gave it may use its memory again.
      this.#parts.push(this.#have + part.length < this.#want ? Buffer.from(part) : view(part));
      this.#have += part.length;
      if (this.#have === this.#want) this.#gathered(out);
    }
    return out;
  }

  /** What is left where the archive is cut off. */
  end(): Uint8Array[] {
    return [...(this.#pax === undefined ? [] : [this.#pax.blocks]), ...this.#parts];
  }

  #gathered(out: Uint8Array[]): void {
    const [first = Buffer.alloc(0), ...rest] = this.#parts;
    const gathered = rest.length === 0 ? first : Buffer.concat(this.#parts);
    this.#parts = [];
    this.#have = 0;
    this.#want = BLOCK_BYTES;
    const take = this.#take;
    this.#take = (block, to) => this.#header(block, to);
    take(gathered, out);
  }

  #gather(bytes: number, take: (gathered: Buffer, out: Uint8Array[]) => void): void {
    this.#want = bytes;
    this.#take = take;
  }

  #header(block: Buffer, out: Uint8Array[]): void {
    const flag = String.fromCharCode(block[156] ?? 0);
    const size = headerNumber(block, 124, 12);
    const isSound = checksumOf(block) === headerNumber(block, 148, 8);
    if (!isSound || !(size >= 0)) {
      this.#release(out);
      give(out, block);
      // Blocks of zeros end an archive, and have no sum.
      this.#isBroken = block.some((byte) => byte !== 0);
      return;
    }
    if (flag === FLAG.pax || flag === FLAG.name) this.#extra(block, flag, size, out);
    else if (flag === FLAG.sparse) this.#old(block, out);
    else if (flag === FLAG.link || flag === FLAG.global) {
      give(out, block);
      this.#left = paddedTo(size);
    } else this.#plain(block, flag, size, out);
  }

  #extra(block: Buffer, flag: string, size: number, out: Uint8Array[]): void {
    if (size > MAX_EXTRA_BYTES || size === 0) {
      give(out, block);
      this.#isBroken = size > 0;
      return;
    }
    // It is kept while others come.
    const header = Buffer.from(block);
    this.#gather(paddedTo(size), (content, to) => {
      const said = content.subarray(0, size);
      if (flag === FLAG.name) {
        this.#longName = said.toString().replace(/\0.*$/s, "");
        give(to, header);
        give(to, content);
      } else this.#pax = { blocks: Buffer.concat([header, content]), records: paxRecords(said) };
    });
  }

  #plain(block: Buffer, flag: string, size: number, out: Uint8Array[]): void {
    const name = this.#nameOf(block);
    const isFolder = flag === FLAG.folder || ((flag === "0" || flag === "\0") && endsInSlash(block));
    const stored = this.#sizeOf(size);
    const records = this.#pax?.records ?? [];
    const numbers = records.filter(([key]) => key === OFFSET || key === NUMBYTES);
    if (numbers.length > 0) {
      const map = pairsOf(name, numbers);
      const others = records.filter(([key]) => !key.startsWith(SPARSE) || key === `${SPARSE}size`);
      this.#pax = undefined;
      out.push(paxHeader([...others.map(([key, value]) => paxRecord(key, value)), mapRecord(map)]));
    }
    this.#release(out);
    give(out, block);
    this.#longName = undefined;
    this.#left = isFolder ? 0 : paddedTo(stored);
  }

  #old(block: Buffer, out: Uint8Array[]): void {
    const old = { header: Buffer.from(block), name: this.#nameOf(block), map: [] };
    this.#regions(old, block, IN_HEADER, out);
  }

  #regions(
    old: Old,
    block: Buffer,
    { at, count, more }: { at: number; count: number; more: number },
    out: Uint8Array[],
  ): void {
    for (let i = 0; i < count; i++) {
      const place = at + i * REGION_BYTES;
      // The first without a length ends the list.
      if (block[place + 12] === 0) break;
      old.map.push({ offset: headerNumber(block, place, 12), length: headerNumber(block, place + 12, 12) });
    }
    checkCount(old.name, old.map.length);
    if (block[more] !== 0) this.#gather(BLOCK_BYTES, (next, to) => this.#regions(old, next, IN_BLOCK, to));
    else this.#renew(old, out);
  }

  /** The entry as pax 0.1 has it. What of it is no number is NaN there, too, and refused with its map. */
  #renew({ header, map }: Old, out: Uint8Array[]): void {
    const size = headerNumber(header, IN_HEADER.size, 12);
    const others = (this.#pax?.records ?? []).filter(([key]) => !key.startsWith(SPARSE));
    const records = others.map(([key, value]) => paxRecord(key, value));
    out.push(paxHeader([...records, paxRecord(`${SPARSE}size`, String(size)), mapRecord(map)]));
    const stored = this.#sizeOf(headerNumber(header, 124, 12));
    this.#pax = undefined;
    this.#longName = undefined;
    header[156] = 0x30;
    out.push(sealed(header));
    this.#left = paddedTo(stored);
  }

  #release(out: Uint8Array[]): void {
    if (this.#pax !== undefined) out.push(this.#pax.blocks);
    this.#pax = undefined;
  }

  /** As the reader takes it. */
  #sizeOf(size: number): number {
    const said = this.#pax?.records.findLast(([key]) => key === "size")?.[1].toString();
    if (said === undefined || said === "") return size;
    const given = Number.parseInt(said, 10);
    if (given >= 0) return given;
    this.#isBroken = true;
    return 0;
  }

  #nameOf(block: Buffer): string {
    const said = this.#pax?.records.findLast(([key]) => key === "path")?.[1].toString();
    return said ?? this.#longName ?? block.toString("utf8", 0, 100).replace(/\0.*$/s, "");
  }
}

const OFFSET = `${SPARSE}offset`;
const NUMBYTES = `${SPARSE}numbytes`;

/** What stands side by side goes as one: for each part the reader has some microseconds of work. */
function give(out: Uint8Array[], part: Uint8Array): void {
  const last = out.at(-1);
  if (last?.buffer === part.buffer && last.byteOffset + last.length === part.byteOffset)
    out[out.length - 1] = new Uint8Array(part.buffer, last.byteOffset, last.length + part.length);
  else out.push(part);
}

const view = (data: Uint8Array): Buffer => Buffer.from(data.buffer, data.byteOffset, data.length);

/** An archive of before pax says so of a folder. */
function endsInSlash(block: Buffer): boolean {
  const end = block.subarray(0, 100).indexOf(0);
  return block[(end < 0 ? 100 : end) - 1] === 0x2f;
}

function pairsOf(name: string, numbers: readonly [key: string, value: Buffer][]): Region[] {
  checkCount(name, numbers.length / 2);
  const map: Region[] = [];
  for (let at = 0; at < numbers.length; at += 2) {
    const [first, second] = [numbers[at], numbers[at + 1]];
    if (first?.[0] !== OFFSET || second?.[0] !== NUMBYTES) throw sparseFault(name, "has half a region");
    map.push({ offset: wholeOf(first[1].toString()), length: wholeOf(second[1].toString()) });
  }
  return map;
}

const mapRecord = (map: readonly Region[]): Buffer =>
  paxRecord(`${SPARSE}map`, map.map(({ offset, length }) => `${offset},${length}`).join(","));
