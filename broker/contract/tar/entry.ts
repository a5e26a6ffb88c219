// What an entry of a tar stream asks for, taken from tar-stream's header and its pax records. Pure.
import { FileError } from "../errors.ts";
import { type Sparse, sparseOf } from "./sparse.ts";

/** tar-stream's, as far as it counts here. */
export interface Header {
  name: string;
  type: string;
  linkname: string | null;
  mode: number;
  uid: number;
  gid: number;
  mtime: Date;
  size?: number | undefined;
  pax?: unknown;
}

export interface ArchiveEntry {
  /** `skip`: devices and fifos. */
  type: "file" | "dir" | "symlink" | "link" | "skip";
  /** The name's components, as bytes; none for the folder itself. */
  names: Buffer[];
  /** Of a symlink or hard link. */
  target: Buffer;
  mode: number;
  uid: number;
  gid: number;
  /** Seconds, with their fraction where pax has it. */
  mtime: number;
  /** Of a file with holes: its content is `placed`. */
  sparse?: Sparse;
}

const SLASH = 0x2f;

const fault = (reason: string, message: string): FileError => new FileError(message, { reason });

/** The components of an entry's name. Throws FileError where it would leave the folder. */
export function componentsOf(name: Buffer): Buffer[] {
  const shown = JSON.stringify(name.toString());
  if (name[0] === SLASH) throw fault("EINVAL", `the archive's entry ${shown} has an absolute name`);
  const parts: Buffer[] = [];
  for (let start = 0; start < name.length; ) {
    const slash = name.indexOf(SLASH, start);
    const end = slash < 0 ? name.length : slash;
    const part = name.subarray(start, end);
    start = end + 1;
    const text = part.toString("latin1");
    if (text === "" || text === ".") continue;
    if (text === "..") throw fault("EINVAL", `the archive's entry ${shown} leaves the folder by ".."`);
    if (text.includes("\0")) throw fault("EINVAL", `the archive's entry ${shown} has a NUL in its name`);
    parts.push(part);
  }
  return parts;
}

/** The option that keeps the bytes of names in headers: tar-stream decodes those as latin1, pax records as UTF-8. */
export const NAME_ENCODING = "latin1";

export function paxOf(header: Pick<Header, "pax">): ReadonlyMap<string, string> {
  const { pax } = header;
  if (typeof pax !== "object" || pax === null) return new Map();
  return new Map(Object.entries(pax).map(([key, value]) => [key, String(value)]));
}

const TYPES: Partial<Record<string, ArchiveEntry["type"]>> = {
  file: "file",
  "contiguous-file": "file",
  directory: "dir",
  symlink: "symlink",
  link: "link",
  "character-device": "skip",
  "block-device": "skip",
  fifo: "skip",
};

/** Throws FileError for names that leave the folder and kinds that cannot be unpacked right. */
export function archiveEntry(header: Header): ArchiveEntry {
  const pax = paxOf(header);
  const type = TYPES[header.type];
  if (type === undefined)
    throw fault("ENOTSUP", `${header.name}: the archive has an entry of an unknown kind`);
  const bytes = (text: string | null, key: string): Buffer =>
    Buffer.from(text ?? "", pax.has(key) ? "utf8" : NAME_ENCODING);
  const number = (key: string, otherwise: number): number => {
    const value = Number(pax.get(key) ?? Number.NaN);
    return Number.isFinite(value) ? value : otherwise;
  };
  const real = pax.get("GNU.sparse.name");
  const name = real === undefined ? bytes(header.name, "path") : Buffer.from(real);
  const sparse = type === "file" ? sparseOf(name.toString(), pax) : undefined;
  return {
    type,
    names: componentsOf(name),
    target: bytes(header.linkname, "linkpath"),
    mode: header.mode & 0o7777,
    uid: number("uid", header.uid),
    gid: number("gid", header.gid),
    mtime: number("mtime", header.mtime.getTime() / 1000),
    ...(sparse !== undefined && { sparse }),
  };
}
