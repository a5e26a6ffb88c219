// Files of executor.ts on the real file system: paths, and one line per operation.
import { chmod, mkdir, rename } from "node:fs/promises";
import type { Files } from "../../broker/endpoint/executor.ts";
import { withPath } from "./error.ts";
import { openPack } from "./pack.ts";
import { openForReading } from "./read.ts";
import { removePath } from "./remove.ts";
import { listFolder, statPath } from "./stat.ts";
import { openUnpack } from "./unpack.ts";
import { makeParents, openForWriting } from "./write.ts";

export interface FilesOptions {
  /** Where relative paths start: the sandbox's working folder. */
  cwd: string;
}

/** All of it throws FileError with the errno's name as reason. Paths are resolved by the kernel, so that `a/..` behind
 * a symlink `a` means what it means to a program. */
export function createFiles(options: FilesOptions): Files {
  const full = (path: string): string => (path.startsWith("/") ? path : `${options.cwd}/${path}`);
  return {
    read: (request) =>
      withPath("read", request.path, () =>
        openForReading(full(request.path), request.offset, request.length),
      ),
    write: (write) => withPath("write", write.path, () => openForWriting(full(write.path), write)),
    stat: (path, follow) => withPath("stat", path, () => statPath(full(path), path, follow)),
    list: (path, after, limit) => withPath("list", path, () => listFolder(full(path), after, limit)),
    remove: (path, recursive, missingOk, signal) =>
      withPath("remove", path, () => removePath(full(path), path, recursive, missingOk, signal)),
    mkdir: (path, mode, parents) => withPath("make the folder", path, () => make(full(path), mode, parents)),
    rename: (from, to) => withPath("rename", `${from} to ${to}`, () => rename(full(from), full(to))),
    pack: (path) => withPath("pack", path, () => openPack(full(path), path)),
    unpack: (path, owner) => withPath("unpack into", path, () => openUnpack(full(path), path, owner)),
  };
}

/** With `parents`, missing folders on the way are made and an existing folder is fine, as mkdir -p. A mode is that of
 * the new folder exactly; the umask does not touch it. */
async function make(path: string, mode: number | undefined, parents: boolean): Promise<void> {
  if (parents) await makeParents(path);
  let made = true;
  if (parents) made = (await mkdir(path, { recursive: true })) !== undefined;
  else await mkdir(path);
  if (made && mode !== undefined) await chmod(path, mode);
}
