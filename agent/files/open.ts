// Opening what stands at a user's path, whatever that is, without waiting for anyone.
import { constants } from "node:fs";
import { type FileHandle, open, stat } from "node:fs/promises";
import type { FileError, FileStat } from "../../broker/contract/index.ts";
import { fileFault } from "./error.ts";
import { typeOf } from "./stat.ts";
import { UNWAITING } from "./unwaiting.ts";

export async function openToRead(path: string | Buffer, flags = 0): Promise<FileHandle> {
  return await open(path, constants.O_RDONLY | UNWAITING | flags);
}

/** A regular file and nothing else; `doing` is a verb: "hash", `shown` the path as it was asked for. Throws FileError. */
export async function openFile(doing: string, path: string, shown: string): Promise<FileHandle> {
  const file = await openToRead(path);
  try {
    const type = typeOf(await file.stat());
    if (type !== "file") throw noContent(doing, shown, type);
    return file;
  } catch (thrown) {
    await file.close();
    throw thrown;
  }
}

/** Before opening, where nobody has looked yet: a fifo's writer, who waits for a reader, would find one, and then that it
 * is gone (SIGPIPE). Throws FileError. */
export async function refusePipes(doing: string, path: string, shown: string): Promise<void> {
  const type = typeOf(await stat(path));
  if (type === "fifo" || type === "socket") throw noContent(doing, shown, type);
}

/** That what is at `path`, of that type, cannot be read like a file. */
export function noContent(doing: string, path: string, type: FileStat["type"]): FileError {
  const cannot = `cannot ${doing} ${path}: it is a`;
  if (type === "dir") return fileFault("EISDIR", `${cannot} folder; list or pack it`);
  if (type === "fifo" || type === "socket")
    return fileFault("EINVAL", `${cannot} ${type}; read it with a command`);
  return fileFault("EINVAL", `${cannot} device, which may have no end (read with a length it is taken)`);
}
