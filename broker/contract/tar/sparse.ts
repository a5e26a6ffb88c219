// The holes of a file in an archive: which regions of it are there. Pure. Format: GNU tar's manual, "Storing Sparse Files".
import { FileError } from "../errors.ts";
import { BLOCK_BYTES, paddedTo, type TarEntry, tarHeader } from "./header.ts";

/** Bytes that stand in the archive; all others are zeros, and holes where it is unpacked. */
export interface Region {
  offset: number;
  length: number;
}

export interface Sparse {
  /** With its holes. */
  size: number;
  /** Undefined where it stands before the content. */
  map: Region[] | undefined;
}

/** Of one file. A map of as many is 3 MB of an archive; who packs more sends the rest of them whole. */
export const MAX_REGIONS = 131_072;
/** All records of pax that speak of holes begin with it. */
export const SPARSE = "GNU.sparse.";
/** A line of a map: a whole number that a double holds. */
const MAX_DIGITS = 16;

/** An archive may be made to do harm: `entry` is named by the error. */
export function sparseFault(entry: string, why: string): FileError {
  return new FileError(`the archive's sparse entry ${JSON.stringify(entry)} ${why}`, { reason: "EINVAL" });
}

/** Throws FileError where they are more than one file may have. */
export function checkCount(entry: string, regions: number): void {
  if (regions > MAX_REGIONS) throw sparseFault(entry, `has more than ${MAX_REGIONS} regions`);
}

/** Throws FileError where the regions are not one behind the other within `size`, or not `stored` bytes together. */
function checkMap(entry: string, { size, map = [] }: Sparse, stored: number): void {
  if (!Number.isSafeInteger(size) || size < 0) throw sparseFault(entry, "has no size");
  checkCount(entry, map.length);
  let end = 0;
  let total = 0;
  for (const { offset, length } of map) {
    if (!Number.isSafeInteger(offset) || !Number.isSafeInteger(length) || offset < 0 || length < 0)
      throw sparseFault(entry, "has a region that is no range of bytes");
    if (offset < end) throw sparseFault(entry, "has regions that overlap, or are in no order");
    end = offset + length;
    if (end > size) throw sparseFault(entry, "has a region beyond its size");
    total += length;
  }
  if (total !== stored)
    throw sparseFault(entry, `has regions of ${total} bytes, and ${stored} bytes of them`);
}

/** A whole number as it stands in an archive's text; NaN for anything else. */
export const wholeOf = (text: string): number =>
  /^\d+$/.test(text) && text.length <= MAX_DIGITS ? Number(text) : Number.NaN;

/** What the records of pax say: formats 0.1 and 1.0 (0.0 was made 0.1 by `GnuSparse`). Undefined where they speak of no
 * holes. Throws FileError. */
export function sparseOf(entry: string, pax: ReadonlyMap<string, string>): Sparse | undefined {
  const said = (key: string): string | undefined => pax.get(`${SPARSE}${key}`);
  const isNew = said("major") !== undefined;
  const text = said("map");
  if (!isNew && text === undefined && said("size") === undefined) return undefined;
  const size = wholeOf(said("realsize") ?? said("size") ?? "");
  if (isNew) {
    if (said("major") !== "1" || said("minor") !== "0")
      throw sparseFault(entry, `is of format ${said("major")}.${said("minor")}, which is not known`);
    return { size, map: undefined };
  }
  const numbers = text === undefined || text === "" ? [] : text.split(",", 2 * MAX_REGIONS + 2);
  if (numbers.length % 2 !== 0) throw sparseFault(entry, "has half a region");
  const map: Region[] = [];
  for (let at = 0; at < numbers.length; at += 2)
    map.push({ offset: wholeOf(numbers[at] ?? ""), length: wholeOf(numbers[at + 1] ?? "") });
  return { size, map };
}

/** The map of format 1.0, which stands before the content: how many regions, and the two numbers of each, a line each, to the
 * end of a block. */
class MapReader {
  readonly #entry: string;
  readonly #numbers: number[] = [];
  #line = "";
  #taken = 0;
  /** Numbers that are to come, with that of how many. */
  #want = 1;

  constructor(entry: string) {
    this.#entry = entry;
  }

  /** Undefined as long as more is to come. */
  get map(): Region[] | undefined {
    if (this.#numbers.length < this.#want || this.#taken % BLOCK_BYTES !== 0) return undefined;
    const map: Region[] = [];
    for (let at = 1; at < this.#want; at += 2)
      map.push({ offset: this.#numbers[at] ?? 0, length: this.#numbers[at + 1] ?? 0 });
    return map;
  }

  /** How many bytes of the content it is. */
  get bytes(): number {
    return this.#taken;
  }

  /** Takes what is the map's; returns what stands behind it. Throws FileError. */
  push(data: Uint8Array): Uint8Array {
    let at = 0;
    while (at < data.length && this.map === undefined) {
      const byte = data[at++] ?? 0;
      this.#taken++;
      // The rest of the last block.
      if (this.#numbers.length === this.#want) continue;
      if (byte !== 0x0a) {
        this.#line += String.fromCharCode(byte);
        if (this.#line.length > MAX_DIGITS) throw sparseFault(this.#entry, "has no map of its regions");
        continue;
      }
      this.#number(wholeOf(this.#line));
      this.#line = "";
    }
    return data.subarray(at);
  }

  #number(value: number): void {
    if (Number.isNaN(value)) throw sparseFault(this.#entry, "has no map of its regions");
    if (this.#numbers.push(value) > 1) return;
    checkCount(this.#entry, value);
    this.#want = 1 + 2 * value;
  }
}

/** A map as it stands before the content. */
export function mapBlock(map: readonly Region[]): Buffer {
  const lines = [map.length, ...map.flatMap(({ offset, length }) => [offset, length])];
  const text = Buffer.from(`${lines.join("\n")}\n`);
  const padded = Buffer.alloc(paddedTo(text.length));
  text.copy(padded);
  return padded;
}

export const bytesIn = (regions: readonly Region[]): number =>
  regions.reduce((sum, { length }) => sum + length, 0);

/** What stands before the content of a file of which these regions are there: its header, and their map. */
export function sparseHeader(entry: TarEntry, regions: readonly Region[]): Buffer {
  const map = mapBlock(regions);
  const size = map.length + bytesIn(regions);
  return Buffer.concat([tarHeader({ ...entry, size, sparse: { size: entry.size } }), map]);
}

/** The content of a sparse entry, `stored` bytes of the archive, as parts that each stand at one place of the file. Throws
 * FileError, before it gives the first, for a map that is none. */
export async function* placed(
  entry: string,
  sparse: Sparse,
  content: AsyncIterable<unknown>,
  stored: number,
): AsyncGenerator<{ at: number; data: Uint8Array }, void, void> {
  const reader = new MapReader(entry);
  let { map } = sparse;
  if (map !== undefined) checkMap(entry, sparse, stored);
  let region = 0;
  let done = 0;
  for await (const part of content) {
    if (!(part instanceof Uint8Array)) continue;
    let data = part;
    if (map === undefined) {
      data = reader.push(data);
      map = reader.map;
      if (map === undefined) continue;
      checkMap(entry, { size: sparse.size, map }, stored - reader.bytes);
    }
    while (data.length > 0) {
      const next = map[region];
      if (next === undefined) return;
      const take = Math.min(data.length, next.length - done);
      if (take > 0) yield { at: next.offset + done, data: data.subarray(0, take) };
      data = data.subarray(take);
      done += take;
      if (done < next.length) continue;
      region++;
      done = 0;
    }
  }
  if (map === undefined) throw sparseFault(entry, "has no map of its regions");
}
