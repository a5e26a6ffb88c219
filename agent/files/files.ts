// Files of executor.ts on the real file system: paths, and one line per operation.
import { rename } from "node:fs/promises";
import { errnoOf } from "../../broker/contract/index.ts";
import type { Files } from "../../broker/endpoint/executor.ts";
import type { Folders } from "../native/folders.ts";
import { withPath } from "./error.ts";
import {
  type Ground,
  groundBeneath,
  makeFolderAt,
  namesFolder,
  openGround,
  withEntry,
  withTarget,
} from "./ground.ts";
import { Listings } from "./listings.ts";
import { openPack } from "./pack.ts";
import { openForReading } from "./read.ts";
import { removePath } from "./remove.ts";
import { listFolder, statPath } from "./stat.ts";
import { openUnpack } from "./unpack.ts";
import { openForWriting } from "./write.ts";

export interface FilesOptions {
  /** Where relative paths start: the sandbox's working folder. */
  cwd: string;
  /** The engine's. Without it paths beneath a root are resolved more slowly. */
  folders?: Folders;
  /** What is kept of folders that are listed in pages. */
  listings?: Listings;
}

/** All of it throws FileError with the errno's name as reason. Paths are resolved by the kernel, so that `a/..` behind
 * a symlink `a` means what it means to a program. */
export const createFiles = ({ cwd, folders, listings = new Listings() }: FilesOptions): Files =>
  filesOn(openGround(cwd), folders, listings);

function filesOn(ground: Ground, folders: Folders | undefined, listings: Listings): Files {
  return {
    read: (read) =>
      withPath("read", read.path, () => withTarget(ground, read.path, (at) => openForReading(at, read))),
    write: (write) => withPath("write", write.path, () => openForWriting(ground, write)),
    stat: (path, follow) =>
      withPath("stat", path, () =>
        follow || namesFolder(path)
          ? withTarget(ground, path, (at) => statPath(at, path, true))
          : withEntry(ground, path, (at) => statPath(at, path, false)),
      ),
    list: (path, after, limit, signal) =>
      withPath("list", path, () =>
        withTarget(ground, path, (at) => listFolder(at, { after, limit, signal, listings, folders })),
      ),
    remove: (path, recursive, missingOk, signal) =>
      withPath("remove", path, async () => {
        try {
          await withEntry(ground, path, (at) => removePath(at, path, recursive, signal));
        } catch (thrown) {
          if (!missingOk || errnoOf(thrown) !== "ENOENT") throw thrown;
        }
      }),
    mkdir: (path, mode, parents) =>
      withPath("make the folder", path, () => makeFolderAt(ground, path, mode, parents)),
    rename: (from, to) =>
      withPath("rename", `${from} to ${to}`, () =>
        withEntry(ground, from, (old) => withEntry(ground, to, (at) => rename(old, at))),
      ),
    pack: (path) =>
      withPath("pack", path, () => withTarget(ground, path, (at) => openPack(at, path, folders))),
    unpack: (path, owner) => withPath("unpack into", path, () => openUnpack(ground, path, owner)),
    beneath: (root) => filesOn(groundBeneath(ground, root, folders), folders, listings),
  };
}
