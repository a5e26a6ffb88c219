// A folder of this machine as a tar stream. Names are bytes, as the file system has them.
import { constants } from "node:fs";
import { lstat, open, readdir, readlink } from "node:fs/promises";
import { entryOf, paddingOf, TRAILER, tarHeader } from "../../../broker/contract/tar/header.ts";
import { localErrors } from "./local-errors.ts";
import { contentOf } from "./local-file.ts";

const { O_RDONLY, O_NOFOLLOW, O_NONBLOCK } = constants;
const SLASH = Buffer.from("/");
const EMPTY = Buffer.alloc(0);

/** The folder's content, names relative to it, with modes, links and times; of a file that grows meanwhile what it had
 * when it was opened. `skipped` is told what an archive cannot hold: fifos, sockets and devices. Throws FileError that
 * names what cannot be read, went away or became shorter meanwhile. */
export async function* packFolder(
  folder: string,
  skipped: (path: string) => void = () => undefined,
): AsyncGenerator<Uint8Array, void, void> {
  yield* packTree(Buffer.from(folder), EMPTY, skipped);
  yield TRAILER;
}

async function* packTree(
  folder: Buffer,
  prefix: Buffer,
  skipped: (path: string) => void,
): AsyncGenerator<Uint8Array, void, void> {
  const names = await localErrors(folder, () => readdir(folder, { encoding: "buffer" }));
  for (const name of names.sort(Buffer.compare)) {
    const path = Buffer.concat([folder, SLASH, name]);
    const full = Buffer.concat([prefix, name]);
    const found = await localErrors(path, () => lstat(path));
    if (found.isDirectory()) {
      yield tarHeader(entryOf(found, "dir", full));
      yield* packTree(path, Buffer.concat([full, SLASH]), skipped);
    } else if (found.isSymbolicLink()) {
      const target = await localErrors(path, () => readlink(path, { encoding: "buffer" }));
      yield tarHeader({ ...entryOf(found, "symlink", full), target });
    } else if (found.isFile()) {
      yield* packFile(path, full);
    } else {
      skipped(path.toString());
    }
  }
}

async function* packFile(path: Buffer, full: Buffer): AsyncGenerator<Uint8Array, void, void> {
  // Should something else have taken its place since: a symlink is not followed, a fifo not waited for.
  const file = await localErrors(path, () => open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK));
  try {
    const found = await localErrors(path, () => file.stat());
    const { size } = found;
    yield tarHeader(entryOf(found, "file", full));
    yield* contentOf(file, path, { atLeast: size, atMost: size });
    yield Buffer.alloc(paddingOf(size));
  } finally {
    await file.close();
  }
}
