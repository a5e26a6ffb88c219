// A folder of this machine as a tar stream. Names are bytes, as the file system has them.
import { constants } from "node:fs";
import { lstat, open, readdir, readlink, stat } from "node:fs/promises";
import { entryOf, paddingOf, TRAILER, tarHeader } from "../../../broker/contract/tar/header.ts";
import { FirstNames } from "../../../broker/contract/tar/names.ts";
import { bytesIn, sparseHeader } from "../../../broker/contract/tar/sparse.ts";
import { regionsOf } from "./holes.ts";
import { localErrors } from "./local-errors.ts";
import { contentOf } from "./local-file.ts";

const { O_RDONLY, O_NOFOLLOW, O_NONBLOCK } = constants;
const SLASH = Buffer.from("/");
const EMPTY = Buffer.alloc(0);

/** Told the path of each fifo, socket and device: they are left out. `count`: how many those are, as far as is known. A
 * sandbox names no more than the first 64 KiB of them. */
export type Skipped = (path: string, count: number) => void;

/** The folder itself as "." and its content, names relative to it, with modes, links (hard ones within it, too) and times to
 * the microsecond; of a file that grows meanwhile what it had when it was opened. Throws FileError that names what cannot be
 * read, went away or became shorter meanwhile. */
export async function* packFolder(
  folder: string | Buffer,
  skipped?: Skipped,
): AsyncGenerator<Uint8Array, void, void> {
  const path = Buffer.from(folder);
  yield tarHeader(entryOf(await localErrors(path, () => stat(path)), "dir", Buffer.from(".")));
  yield* packTree(path, EMPTY, new Course(skipped));
  yield TRAILER;
}

/** What stands at `path`, a symlink as such, under that one name; otherwise as `packFolder`. */
export async function* packAs(
  name: Buffer,
  path: string | Buffer,
  skipped?: Skipped,
): AsyncGenerator<Uint8Array, void, void> {
  yield* packEntry(Buffer.from(path), name, new Course(skipped));
  yield TRAILER;
}

/** What is known of what was packed before. */
class Course {
  readonly #skipped: Skipped | undefined;
  #count = 0;
  readonly firstNames = new FirstNames();

  constructor(skipped: Skipped | undefined) {
    this.#skipped = skipped;
  }

  leaveOut(path: string): void {
    this.#skipped?.(path, ++this.#count);
  }
}

async function* packTree(
  folder: Buffer,
  prefix: Buffer,
  course: Course,
): AsyncGenerator<Uint8Array, void, void> {
  const names = await localErrors(folder, () => readdir(folder, { encoding: "buffer" }));
  for (const name of names.sort(Buffer.compare))
    yield* packEntry(Buffer.concat([folder, SLASH, name]), Buffer.concat([prefix, name]), course);
}

async function* packEntry(
  path: Buffer,
  full: Buffer,
  course: Course,
): AsyncGenerator<Uint8Array, void, void> {
  const found = await localErrors(path, () => lstat(path));
  if (found.isDirectory()) {
    yield tarHeader(entryOf(found, "dir", full));
    yield* packTree(path, Buffer.concat([full, SLASH]), course);
  } else if (found.isSymbolicLink()) {
    const target = await localErrors(path, () => readlink(path, { encoding: "buffer" }));
    yield tarHeader({ ...entryOf(found, "symlink", full), target });
  } else if (found.isFile()) {
    yield* packFile(path, full, course);
  } else {
    course.leaveOut(path.toString());
  }
}

async function* packFile(path: Buffer, full: Buffer, course: Course): AsyncGenerator<Uint8Array, void, void> {
  // Should something else have taken its place since: a symlink is not followed, a fifo not waited for.
  const file = await localErrors(path, () => open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK));
  try {
    const found = await localErrors(path, () => file.stat());
    const { size } = found;
    const target =
      found.nlink < 2
        ? undefined
        : course.firstNames.of(await localErrors(path, () => file.stat({ bigint: true })), full);
    if (target !== undefined) {
      yield tarHeader({ ...entryOf(found, "link", full), target });
      return;
    }
    const entry = entryOf(found, "file", full);
    const regions = await regionsOf(file, path, found);
    if (regions === undefined) {
      yield tarHeader(entry);
      yield* contentOf(file, path, { atLeast: size, atMost: size });
      yield Buffer.alloc(paddingOf(size));
      return;
    }
    yield sparseHeader(entry, regions);
    for (const { offset, length } of regions)
      yield* contentOf(file, path, { atLeast: length, atMost: length, from: offset });
    yield Buffer.alloc(paddingOf(bytesIn(regions)));
  } finally {
    await file.close();
  }
}
