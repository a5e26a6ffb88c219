// Trees of virtual files as tar, both ways.
import { extract, pack } from "tar-stream";
import { FileError } from "../../../broker/contract/index.ts";
import { paxOf } from "../../../broker/contract/tar/entry.ts";
import { placed, sparseOf } from "../../../broker/contract/tar/sparse.ts";
import type { ByteSink } from "../../../broker/endpoint/executor.ts";
import { DISK_BYTES, type MemoryFile, type MemoryFiles } from "./files.ts";

/** A file alone, or a folder's contents, as an archive. */
export async function packTree(
  path: string,
  node: MemoryFile,
  below: readonly [string, MemoryFile][],
): Promise<Uint8Array> {
  const stream = pack();
  const length = path === "/" ? 1 : path.length + 1;
  if (node.data !== undefined) entry(path.slice(path.lastIndexOf("/") + 1), node);
  for (const [each, file] of below) entry(each.slice(length), file);
  function entry(name: string, { data, mode, uid, gid, mtimeMs }: MemoryFile): void {
    const header = { name, mode, uid, gid, mtime: new Date(mtimeMs) };
    if (data === undefined) stream.entry({ ...header, type: "directory" });
    else stream.entry({ ...header, type: "file" }, Buffer.from(data));
  }
  stream.finalize();
  const parts: Buffer[] = [];
  for await (const part of stream as AsyncIterable<Buffer>) parts.push(part);
  return Buffer.concat(parts);
}

/** Unpacks below `path` when the last part has come. Throws FileError for a name that leaves the folder, for a link
 * (a virtual sandbox has none), and for what is no archive. */
export function unpackSink(files: MemoryFiles, path: string): ByteSink {
  const parts: Uint8Array[] = [];
  return {
    write: async (data) => {
      parts.push(new Uint8Array(data));
    },
    finish: () => unpack(files, path, Buffer.concat(parts)),
    abort: async () => {},
  };
}

async function unpack(files: MemoryFiles, path: string, archive: Buffer): Promise<void> {
  const stream = extract();
  stream.end(archive);
  try {
    for await (const entry of stream) {
      const { type, mode, uid, gid, mtime, size = 0 } = entry.header;
      const pax = paxOf(entry.header);
      const name = pax.get("GNU.sparse.name") ?? entry.header.name;
      const sparse = sparseOf(name, pax);
      const data: Buffer[] = [];
      if (sparse === undefined) for await (const part of entry as AsyncIterable<Buffer>) data.push(part);
      else {
        // Memory has no holes.
        if (sparse.size > DISK_BYTES) throw new FileError(`ENOSPC: ${name}`, { reason: "ENOSPC" });
        const whole = Buffer.alloc(sparse.size || 0);
        for await (const part of placed(name, sparse, entry, size)) whole.set(part.data, part.at);
        data.push(whole);
      }
      if (name.split("/").includes("..")) {
        throw new FileError(`the archive's ${name} would leave the folder`, { reason: "EPERM" });
      }
      const target = files.resolve(`${path}/${name}`);
      if (type === "directory") files.makeFolder(target, true, mode);
      else if (type === "file") {
        const more = { uid: uid ?? 0, gid: gid ?? 0, ...(mode === undefined ? {} : { mode }) };
        files.put(target, Buffer.concat(data), mtime ? { ...more, mtimeMs: mtime.getTime() } : more);
      } else throw new FileError(`${name}: a virtual sandbox has no ${type}`, { reason: "ENOTSUP" });
    }
  } catch (error) {
    if (error instanceof FileError) throw error;
    throw new FileError(`not a tar archive: ${(error as Error).message}`, { reason: "EINVAL" });
  }
}
