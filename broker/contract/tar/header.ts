// The header blocks of one tar entry: ustar, with pax records for what ustar cannot hold. Names are bytes, as the file
// system has them. Pure. Format: POSIX.1-2017, pax, "ustar Interchange Format".

export const BLOCK_BYTES = 512;
/** Two blocks of zeros end an archive. */
export const TRAILER = Buffer.alloc(2 * BLOCK_BYTES);
const NAME_BYTES = 100;
const PREFIX_BYTES = 155;
const MAX_OCTAL_7 = 0o7777777;
const MAX_OCTAL_11 = 0o77777777777;

export interface TarEntry {
  type: "file" | "link" | "symlink" | "dir";
  /** Without a slash at the start or the end. */
  name: Buffer;
  /** Of a symlink as it is; of a hard link the other entry's name. */
  target?: Buffer;
  mode: number;
  uid: number;
  gid: number;
  /** Of a file's content, which follows the header, padded to whole blocks. */
  size: number;
  /** Of a file of which the archive has some regions only (see `sparseHeader`): its size with its holes. */
  sparse?: { size: number };
  /** With its fraction: archives hold times to the microsecond, which is what can be set. */
  mtimeMs: number;
}

/** A runtime's utimes takes seconds as a double, and a double holds today's to a quarter of a microsecond. */
const microsecondsOf = ({ mtimeMs }: TarEntry): number => Math.round(mtimeMs * 1000);
const MICROSECONDS = 1_000_000;

/** Of what fs.stat says; `size` counts of a file alone. */
export function entryOf(
  stats: Pick<TarEntry, "mode" | "uid" | "gid" | "size" | "mtimeMs">,
  type: TarEntry["type"],
  name: Buffer,
): TarEntry {
  return {
    type,
    name,
    mode: stats.mode & 0o7777,
    uid: stats.uid,
    gid: stats.gid,
    size: type === "file" ? stats.size : 0,
    mtimeMs: stats.mtimeMs,
  };
}

const TYPE_FLAGS = { file: "0", link: "1", symlink: "2", dir: "5" } as const;

export const paddingOf = (size: number): number => (BLOCK_BYTES - (size % BLOCK_BYTES)) % BLOCK_BYTES;

/** What `size` bytes take of an archive. */
export const paddedTo = (size: number): number => Math.ceil(size / BLOCK_BYTES) * BLOCK_BYTES;

function isUtf8(bytes: Buffer): boolean {
  return Buffer.from(bytes.toString()).equals(bytes);
}

/** "LENGTH KEY=VALUE\n", where the length counts its own digits. */
export function paxRecord(key: string, value: Buffer | string): Buffer {
  const rest = Buffer.concat([Buffer.from(` ${key}=`), Buffer.from(value), Buffer.from("\n")]);
  let length = rest.length + 1;
  while (String(length).length + rest.length !== length) length = String(length).length + rest.length;
  return Buffer.concat([Buffer.from(String(length)), rest]);
}

function octal(block: Buffer, value: number, at: number, width: number): void {
  block.write(`${value.toString(8).padStart(width - 1, "0")}\0`, at, "latin1");
}

function rawHeader(
  entry: TarEntry,
  flag: string,
  name: Buffer,
  prefix: Buffer,
  target: Buffer | undefined,
): Buffer {
  const block = Buffer.alloc(BLOCK_BYTES);
  name.copy(block, 0, 0, NAME_BYTES);
  octal(block, entry.mode & 0o7777, 100, 8);
  octal(block, entry.uid > MAX_OCTAL_7 ? 0 : entry.uid, 108, 8);
  octal(block, entry.gid > MAX_OCTAL_7 ? 0 : entry.gid, 116, 8);
  octal(block, entry.size > MAX_OCTAL_11 ? 0 : entry.size, 124, 12);
  const seconds = Math.floor(microsecondsOf(entry) / MICROSECONDS);
  octal(block, seconds < 0 || seconds > MAX_OCTAL_11 ? 0 : seconds, 136, 12);
  block.write(flag, 156, "latin1");
  target?.copy(block, 157, 0, NAME_BYTES);
  block.write("ustar\x0000", 257, "latin1");
  octal(block, 0, 329, 8);
  octal(block, 0, 337, 8);
  prefix.copy(block, 345, 0, PREFIX_BYTES);
  return sealed(block);
}

/** The header block with its checksum in it. */
export function sealed(block: Buffer): Buffer {
  block.write(`${checksumOf(block).toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return block;
}

/** With its own field as spaces. */
export function checksumOf(block: Buffer): number {
  let sum = 8 * 0x20;
  for (let at = 0; at < 148; at++) sum += block[at] ?? 0;
  for (let at = 156; at < BLOCK_BYTES; at++) sum += block[at] ?? 0;
  return sum;
}

/** A number of a header: octal digits, or GNU's binary form; NaN where it is neither, 0 where it is empty. */
export function headerNumber(block: Buffer, at: number, length: number): number {
  const field = block.subarray(at, at + length);
  if ((field[0] ?? 0) & 0x80) {
    if (field[0] !== 0x80) return Number.NaN;
    return field.subarray(1).reduce((sum, byte) => sum * 256 + byte, 0);
  }
  const text = field
    .toString("latin1")
    .replace(/^[ \0]+/, "")
    .replace(/[ \0].*$/s, "");
  if (text === "") return 0;
  return /^[0-7]+$/.test(text) ? Number.parseInt(text, 8) : Number.NaN;
}

/** The records of a pax header's content, in their order; those that are none end them. */
export function paxRecords(content: Buffer): [key: string, value: Buffer][] {
  const records: [string, Buffer][] = [];
  for (let at = 0; at < content.length; ) {
    const space = content.indexOf(0x20, at);
    const length = Number(space < 0 ? "" : content.toString("latin1", at, space));
    const equals = content.indexOf(0x3d, space);
    if (!(length > 0) || equals < 0 || equals >= at + length) break;
    records.push([
      content.toString("utf8", space + 1, equals),
      content.subarray(equals + 1, at + length - 1),
    ]);
    at += length;
  }
  return records;
}

/** The extra entry that has these records. */
export const paxHeader = (records: readonly Buffer[]): Buffer =>
  Buffer.concat(extra("x", "PaxHeaders/entry", Buffer.concat(records)));

const EMPTY = Buffer.alloc(0);

/** An extra entry whose content says something about the next one. */
function extra(flag: string, name: string, content: Buffer): Buffer[] {
  const about: TarEntry = {
    type: "file",
    name: EMPTY,
    mode: 0o644,
    uid: 0,
    gid: 0,
    size: content.length,
    mtimeMs: 0,
  };
  return [
    rawHeader(about, flag, Buffer.from(name), EMPTY, undefined),
    content,
    Buffer.alloc(paddingOf(content.length)),
  ];
}

/** Divides a long name at a slash into ustar's prefix and name; undefined where it does not fit. */
function splitName(name: Buffer): [prefix: Buffer, name: Buffer] | undefined {
  if (name.length <= NAME_BYTES) return [EMPTY, name];
  for (let at = name.indexOf(0x2f, name.length - NAME_BYTES - 1); at > 0; at = name.indexOf(0x2f, at + 1))
    if (at <= PREFIX_BYTES && at < name.length - 1) return [name.subarray(0, at), name.subarray(at + 1)];
  return undefined;
}

/** The header of `entry`, with what must stand before it. */
export function tarHeader(entry: TarEntry): Buffer {
  const parts: Buffer[] = [];
  const records: Buffer[] = [];
  const { sparse } = entry;
  let name = entry.type === "dir" ? Buffer.concat([entry.name, Buffer.from("/")]) : entry.name;
  if (sparse !== undefined) {
    records.push(paxRecord("GNU.sparse.major", "1"), paxRecord("GNU.sparse.minor", "0"));
    // Who knows nothing of holes unpacks it under a name that says so. (One that is no UTF-8 fits into no record.)
    if (isUtf8(name)) {
      records.push(paxRecord("GNU.sparse.name", name));
      name = Buffer.from("GNUSparseFile.0/entry");
    }
    records.push(paxRecord("GNU.sparse.realsize", String(sparse.size)));
  }
  const split = splitName(name);
  // pax names are UTF-8 by definition; GNU's long name takes any bytes, and every reader knows it.
  const long = (key: string, flag: string, value: Buffer): void => {
    if (isUtf8(value)) records.push(paxRecord(key, value));
    else parts.push(...extra(flag, "././@LongLink", Buffer.concat([value, Buffer.alloc(1)])));
  };
  if (split === undefined) long("path", "L", name);
  const { target } = entry;
  if (target !== undefined && target.length > NAME_BYTES) long("linkpath", "K", target);
  if (entry.uid > MAX_OCTAL_7) records.push(paxRecord("uid", String(entry.uid)));
  if (entry.gid > MAX_OCTAL_7) records.push(paxRecord("gid", String(entry.gid)));
  if (entry.size > MAX_OCTAL_11) records.push(paxRecord("size", String(entry.size)));
  const micros = microsecondsOf(entry);
  if (micros % MICROSECONDS !== 0 || micros < 0)
    records.push(paxRecord("mtime", (micros / MICROSECONDS).toFixed(6)));
  if (records.length > 0) parts.push(paxHeader(records));
  const [prefix, short] = split ?? [EMPTY, name.subarray(0, NAME_BYTES)];
  parts.push(rawHeader(entry, TYPE_FLAGS[entry.type], short, prefix, target));
  return Buffer.concat(parts);
}
