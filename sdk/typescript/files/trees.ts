// Files and folders between this machine and a sandbox.
import { isUtf8 } from "node:buffer";
import { rmSync, type Stats } from "node:fs";
import {
  chmod,
  lstat,
  lutimes,
  mkdir,
  open,
  realpath,
  rename,
  rm,
  stat,
  symlink,
  utimes,
} from "node:fs/promises";
import { posix } from "node:path";
import { FileError, type FileStat, NotFoundError, newUuidV7 } from "../../../broker/contract/index.ts";
import { utimeOf } from "../../../broker/contract/tar/utime.ts";
import { bytesOf, given, invalid } from "../arguments.ts";
import { defined } from "../spec.ts";
import type { Abortable, Files } from "./files.ts";
import { mayHaveHoles } from "./holes.ts";
import { ifThere, localErrors } from "./local-errors.ts";
import { localFile } from "./local-file.ts";
import { isByDescriptor, readSpecial } from "./local-stream.ts";
import { isSpecial, writeSpecial } from "./local-write.ts";
import { packAs, packFolder, type Skipped } from "./pack.ts";
import { Anew } from "./read.ts";
import { unpackFile, unpackFolder } from "./unpack.ts";

export interface CopyOptions extends Abortable {
  /** Of a symlink that is named itself: true (default) copies what it leads to, false the link. */
  follow?: boolean;
  skipped?: Skipped;
  /** Called before a folder's copying throws, where what was copied by then stays: in a folder that was there, and in
   * the sandbox. */
  partial?: () => void;
}

const SLASH = Buffer.from("/");
/** Linux's NAME_MAX. */
const MAX_NAME_BYTES = 255;

function localPath(local: string | Uint8Array): Buffer {
  const path = Buffer.from(bytesOf(local, "local"));
  if (path.length === 0 || path.includes(0)) throw invalid("local", "must be a path of this machine");
  return path;
}

/** A path as bytes, cut at its last slash. */
function splitPath(path: Buffer): { folder: Buffer; name: Buffer } {
  const text = path.toString("latin1");
  return {
    folder: Buffer.from(posix.dirname(text), "latin1"),
    name: Buffer.from(posix.basename(text), "latin1"),
  };
}

/** What is read to its end rather than copied as it stands: a fifo, and what a descriptor leads to, also a terminal or
 * /dev/null. Of a device that is named itself there may be no end. */
const isStream = (found: Stats, byDescriptor: boolean): boolean =>
  found.isFIFO() || (byDescriptor && found.isCharacterDevice());

export async function upload(
  files: Files,
  local: string | Uint8Array,
  remote: string | Uint8Array,
  copyOptions: CopyOptions,
): Promise<void> {
  const { skipped, partial, follow: asked = true, ...options } = given(copyOptions);
  const path = localPath(local);
  const byDescriptor = await isByDescriptor(path);
  const follow = asked || byDescriptor;
  const found = await localErrors(path, () => (follow ? stat(path) : lstat(path)));
  const target = Buffer.from(bytesOf(remote, "remote"));
  if (isStream(found, byDescriptor)) {
    if (!isUtf8(target)) throw invalid("remote", "must be UTF-8 for what is read of a pipe");
    await files.write(target.toString(), readSpecial(path, byDescriptor, options.signal), options);
    return;
  }
  if (!found.isDirectory() && !found.isSymbolicLink() && !found.isFile())
    throw new FileError(`${path} is neither a file, a folder nor a pipe`, { reason: "EINVAL" });
  const byArchive = async () => {
    const { folder, name } = splitPath(target);
    if (!isUtf8(folder)) throw invalid("remote", "only the last part may be other than UTF-8");
    const real = () => localErrors(path, () => realpath(path, { encoding: "buffer" }));
    const source = follow ? await real() : path;
    await files.unpack(folder.toString(), packAs(name, source, skipped), options);
  };
  if (found.isSymbolicLink() || !isUtf8(target)) {
    await byArchive();
  } else if (found.isDirectory()) {
    let begun = false;
    const told = { ...options, begun: () => (begun = true) };
    const stays = (error: unknown) => begun && !wroteNothing(error);
    await telling(partial, stays, () => files.unpack(target.toString(), packFolder(path, skipped), told));
  } else if (mayHaveHoles(found) && (await isFree(files, target.toString(), options))) {
    // Archives have holes, a write's bytes have none.
    await byArchive();
  } else {
    const { mtimeMs } = found;
    const mode = found.mode & 0o7777;
    await files.write(target.toString(), localFile(path), { ...options, mode, mtimeMs });
  }
}

/** Nothing is there: what is has an owner and a mode, or leads elsewhere, which a write keeps. */
async function isFree(files: Files, path: string, options: Abortable): Promise<boolean> {
  try {
    await files.stat(path, { ...options, follow: false });
    return false;
  } catch (error) {
    if (error instanceof FileError && error.reason === "ENOENT") return !path.endsWith("/");
    throw error;
  }
}

export async function download(
  files: Files,
  remote: string,
  local: string | Uint8Array,
  copyOptions: CopyOptions,
): Promise<void> {
  const { skipped, partial, follow = true, ...options } = given(copyOptions);
  const path = localPath(local);
  const found = await files.stat(remote, { ...options, follow });
  const there = await localErrors(path, () => ifThere(stat(path)));
  const content = () => files.pack(remote, { ...options, ...defined({ skipped }) });
  let wrote = false;
  // What a fifo has taken cannot be begun anew: it would come twice.
  let taken = false;
  const take = () => (taken = true);
  const copy = async () => {
    if (found.type !== "dir") await localErrors(path, () => put(files, remote, path, found, options, take));
    else if (there === undefined) await localErrors(path, () => makeFolder(content(), path, found));
    // One that was there keeps its own mode and time, and what is in it.
    else await unpackFolder(content(), path, () => (wrote = true));
  };
  await telling(
    partial,
    () => wrote,
    () => untilWhole(copy, () => !taken, new Anew(options.signal)),
  );
}

/** There is no such sandbox, or it says so; of a transfer that it gave up it has written some. */
const wroteNothing = (error: unknown): boolean =>
  (error instanceof NotFoundError && error.field !== "transfer") ||
  (error instanceof FileError && error.started === "no");

async function untilWhole(copy: () => Promise<void>, mayAgain: () => boolean, anew: Anew): Promise<void> {
  for (;;) {
    try {
      return await copy();
    } catch (error) {
      if (!mayAgain()) throw error;
      await anew.after(error);
    }
  }
}

async function telling<T>(
  partial: (() => void) | undefined,
  stays: (error: unknown) => boolean,
  work: () => Promise<T>,
): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (stays(error)) partial?.();
    throw error;
  }
}

async function makeFolder(content: AsyncIterable<Uint8Array>, local: Buffer, found: FileStat): Promise<void> {
  await mkdir(splitPath(local).folder, { recursive: true });
  await whole(local, async (half) => {
    await unpackFolder(content, half);
    await dress(half, found);
  });
}

/** What `make` makes, under another name first, so that a half one is never taken for whole: it appears whole, or not
 * at all. */
async function whole(place: Buffer, make: (half: Buffer) => Promise<void>): Promise<void> {
  const half = halfOf(place);
  if (halves.size === 0) process.on("exit", removeHalves);
  halves.add(half);
  try {
    await make(half);
    await rename(half, place);
  } finally {
    await rm(half, { recursive: true, force: true });
    halves.delete(half);
    if (halves.size === 0) process.removeListener("exit", removeHalves);
  }
}

/** Those of now, which an exit in their midst takes along. */
const halves = new Set<Buffer>();
/** What is being written by another thread may come again meanwhile. */
const TRIES = 5;

function removeHalves(): void {
  for (const half of halves)
    for (let tries = 0; tries < TRIES; tries++)
      try {
        rmSync(half, { recursive: true, force: true });
        break;
      } catch {
        // Nobody is left to be told; what stays has a name that says so.
      }
}

/** Beside it, on the same file system; cut where the name would become too long. */
function halfOf(place: Buffer): Buffer {
  const { folder, name } = splitPath(place);
  const end = Buffer.from(`.${newUuidV7()}.part`);
  return Buffer.concat([
    folder,
    SLASH,
    Buffer.from("."),
    name.subarray(0, MAX_NAME_BYTES - 1 - end.length),
    end,
  ]);
}

/** A file or a symlink. As cp(1) has it, a file goes to what a symlink leads to, and what is neither file nor folder, such
 * as /dev/stdout, is written to. */
async function put(
  files: Files,
  remote: string,
  local: Buffer,
  found: FileStat,
  options: Abortable,
  onTake: () => void,
): Promise<void> {
  await mkdir(splitPath(local).folder, { recursive: true });
  const there = await ifThere(stat(local));
  const content = () => files.readStream(remote, options);
  if (isSpecial(there)) {
    if (found.type === "symlink")
      throw new FileError(`${local} is in the way of the symlink`, { reason: "EEXIST" });
    return await writeSpecial(local, told(content(), onTake), options.signal);
  }
  let place = local;
  if (there?.isDirectory() === true)
    place = Buffer.concat([local, SLASH, Buffer.from(posix.basename(remote))]);
  else if (there !== undefined && found.type !== "symlink")
    place = await realpath(local, { encoding: "buffer" });
  await whole(place, async (half) => {
    if (found.type === "symlink") return await makeLink(half, found);
    const { allocated_bytes: allocated = found.size } = found;
    if (allocated < found.size) await unpackFile(files.pack(remote, options), half);
    else await writeNew(half, content());
    await dress(half, found);
  });
}

/** The parts, of each of which it is told before it is given away. */
async function* told(parts: AsyncIterable<Uint8Array>, tell: () => void): AsyncGenerator<Uint8Array> {
  for await (const part of parts) {
    tell();
    yield part;
  }
}

async function writeNew(path: Buffer, source: AsyncIterable<Uint8Array>): Promise<void> {
  const file = await open(path, "wx", 0o600);
  try {
    for await (const part of source) await file.writeFile(part);
  } finally {
    await file.close();
  }
}

async function makeLink(half: Buffer, { path, target = "", mtime_ms }: FileStat): Promise<void> {
  if (target.includes("\ufffd"))
    throw new FileError(`${path} leads to a name that is no UTF-8; copy the folder that it is in`, {
      reason: "EILSEQ",
    });
  await symlink(target, half);
  const time = utimeOf(mtime_ms / 1000);
  await lutimes(half, time, time);
}

async function dress(path: Buffer, { mode, mtime_ms }: FileStat): Promise<void> {
  const time = utimeOf(mtime_ms / 1000);
  await utimes(path, time, time);
  await chmod(path, mode);
}
