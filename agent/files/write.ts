// Writing a file so that nobody sees half of it: into a hidden file beside it, which takes its place at the end.
import { constants, type Stats } from "node:fs";
import { type FileHandle, lstat, mkdir, open, readlink, rename, rm } from "node:fs/promises";
import { dirname } from "node:path";
import { errnoOf } from "../../broker/contract/index.ts";
import type { ByteSink, WriteOptions } from "../../broker/endpoint/executor.ts";
import { draftName } from "./draft.ts";
import { fileFault, toFileError } from "./error.ts";
import { openToRead } from "./open.ts";
import { UNWAITING } from "./unwaiting.ts";
import { writeAll } from "./write-all.ts";

const { O_WRONLY, O_CREAT, O_EXCL, O_APPEND, O_NOFOLLOW, O_TRUNC } = constants;
/** As the kernel. */
const MAX_SYMLINKS = 40;
const COPY_BYTES = 256 * 1024;
/** What a new file gets where the request names no mode: as open(2) would, by the daemon's umask. */
const newFileMode = (): number => 0o666 & ~process.umask();

/** Where a write to `path` ends up: behind the symlinks that it consists of, whether or not the last one's target
 * exists. (Replacing the link itself would turn /etc/resolv.conf, say, into a file of its own.) */
async function followLinks(path: string): Promise<{ path: string; stats: Stats | undefined }> {
  let at = path;
  for (let links = 0; links < MAX_SYMLINKS; links++) {
    let stats: Stats;
    try {
      stats = await lstat(at);
    } catch (thrown) {
      if (errnoOf(thrown) !== "ENOENT") throw thrown;
      return { path: at, stats: undefined };
    }
    if (!stats.isSymbolicLink()) return { path: at, stats };
    const target = await readlink(at);
    at = target.startsWith("/") ? target : `${dirname(at)}/${target}`;
  }
  throw fileFault("ELOOP", `cannot write ${path}: symbolic links lead in a circle (ELOOP)`);
}

/** Mode, owner and time as asked for; else those of `replaced`, so that a rewritten script stays executable and a
 * user's file stays the user's. */
async function dress(file: FileHandle, options: WriteOptions, replaced: Stats | undefined): Promise<void> {
  const { uid, gid } = options;
  // Before the mode: changing the owner clears the set-uid bits.
  if (process.geteuid?.() === 0 && replaced !== undefined) await keepOwner(file, replaced);
  if (uid !== undefined || gid !== undefined) {
    const now = await file.stat();
    await file.chown(uid ?? now.uid, gid ?? now.gid);
  }
  const mode = options.mode ?? (replaced === undefined ? undefined : replaced.mode & 0o7777);
  await file.chmod(mode ?? newFileMode());
}

/** Where it cannot be kept, the file is the writer's, as with `cp --remove-destination`: an owner that the user namespace
 * does not map (EINVAL), a root without CAP_CHOWN (EPERM). */
async function keepOwner(file: FileHandle, { uid, gid }: Stats): Promise<void> {
  try {
    await file.chown(uid, gid);
  } catch (thrown) {
    if (!["EINVAL", "EPERM"].includes(errnoOf(thrown) ?? "")) throw thrown;
  }
}

async function setTime(file: FileHandle, options: WriteOptions): Promise<void> {
  if (options.mtimeMs !== undefined) await file.utimes(options.mtimeMs / 1000, options.mtimeMs / 1000);
}

/** Appends, and writes to what cannot be replaced (a device, a file of /proc): nothing happens before the end. */
class DirectSink implements ByteSink {
  readonly #options: WriteOptions;
  readonly #path: string;
  readonly #replaced: Stats | undefined;
  readonly #parts: Uint8Array[] = [];

  constructor(options: WriteOptions, path: string, replaced: Stats | undefined) {
    this.#options = options;
    this.#path = path;
    this.#replaced = replaced;
  }

  async write(data: Uint8Array): Promise<void> {
    this.#parts.push(Uint8Array.from(data));
  }

  async finish(): Promise<void> {
    const { path, append, fsync, mode } = this.#options;
    try {
      const flags = O_WRONLY | O_CREAT | UNWAITING | (append ? O_APPEND : 0);
      const file = await open(this.#path, flags, mode ?? 0o666);
      try {
        await writeAll(file, Buffer.concat(this.#parts));
        if (this.#replaced === undefined || mode !== undefined || this.#options.uid !== undefined)
          if (this.#replaced?.isFile() ?? true) await dress(file, this.#options, this.#replaced);
        await setTime(file, this.#options);
        if (fsync) await file.sync();
      } finally {
        await file.close();
      }
    } catch (thrown) {
      throw toFileError(append ? "append to" : "write", path, thrown);
    }
  }

  async abort(): Promise<void> {
    this.#parts.length = 0;
  }
}

/** A new or replaced regular file. */
class ReplacingSink implements ByteSink {
  readonly #options: WriteOptions;
  readonly #target: string;
  readonly #draft: string;
  readonly #replaced: Stats | undefined;
  readonly #file: FileHandle;
  #open = true;

  constructor(
    options: WriteOptions,
    target: string,
    draft: string,
    replaced: Stats | undefined,
    file: FileHandle,
  ) {
    this.#options = options;
    this.#target = target;
    this.#draft = draft;
    this.#replaced = replaced;
    this.#file = file;
  }

  async write(data: Uint8Array): Promise<void> {
    await this.#orNothing(() => writeAll(this.#file, data));
  }

  async finish(): Promise<void> {
    await this.#orNothing(async () => {
      await dress(this.#file, this.#options, this.#replaced);
      await setTime(this.#file, this.#options);
      if (this.#options.fsync) await this.#file.sync();
      this.#open = false;
      await this.#file.close();
      await this.#place();
      if (this.#options.fsync) await syncFolder(dirname(this.#target));
    });
  }

  async abort(): Promise<void> {
    if (this.#open) {
      this.#open = false;
      await this.#file.close();
    }
    await rm(this.#draft, { force: true });
  }

  async #place(): Promise<void> {
    try {
      await rename(this.#draft, this.#target);
    } catch (thrown) {
      // A file that is itself a mount point (/etc/hosts in a pod) cannot be replaced, only rewritten.
      if (errnoOf(thrown) !== "EBUSY" || this.#replaced === undefined) throw thrown;
      await copyInto(this.#draft, this.#target);
      await rm(this.#draft, { force: true });
    }
  }

  async #orNothing(act: () => Promise<void>): Promise<void> {
    try {
      await act();
    } catch (thrown) {
      await this.abort().catch(() => {});
      throw toFileError("write", this.#options.path, thrown);
    }
  }
}

async function copyInto(from: string, to: string): Promise<void> {
  await using source = await openToRead(from, O_NOFOLLOW);
  await using target = await open(to, O_WRONLY | O_TRUNC | UNWAITING);
  const buffer = Buffer.allocUnsafeSlow(COPY_BYTES);
  for (;;) {
    const { bytesRead } = await source.read(buffer, 0, COPY_BYTES, null);
    if (bytesRead === 0) return;
    await writeAll(target, buffer.subarray(0, bytesRead));
  }
}

async function syncFolder(path: string): Promise<void> {
  await using folder = await open(path, constants.O_RDONLY | constants.O_DIRECTORY);
  await folder.sync();
}

/** mkdir -p of what leads to `path`; a file on the way is ENOTDIR, not the EEXIST that mkdir(2) makes of it. */
export async function makeParents(path: string): Promise<void> {
  try {
    await mkdir(dirname(path), { recursive: true });
  } catch (thrown) {
    if (errnoOf(thrown) !== "EEXIST") throw thrown;
    throw fileFault("ENOTDIR", `cannot make the folders of ${path}: a part of the path is a file (ENOTDIR)`);
  }
}

/** Files of kernel file systems cannot be replaced by a rename, nor can their folders hold a draft. */
const KERNEL_FOLDER = /^\/(proc|sys)(\/|$)/;

/** Begins a write. Until `finish` nothing is visible at the path (an append and a write to a device take one part,
 * kept in memory). A symlink is written through. Throws FileError. */
export async function openForWriting(path: string, options: WriteOptions): Promise<ByteSink> {
  if (options.parents) await makeParents(path);
  const target = await followLinks(path);
  const { stats } = target;
  if (stats?.isDirectory() || target.path.endsWith("/"))
    throw fileFault("EISDIR", `cannot write ${path}: it is a folder; name a file in it`);
  if (stats?.isFIFO() || stats?.isSocket())
    throw fileFault("EINVAL", `cannot write ${path}: it is a pipe or socket; write to it with a command`);
  const replaceable = stats === undefined || stats.isFile();
  if (options.append || !replaceable || KERNEL_FOLDER.test(target.path))
    return new DirectSink(options, target.path, stats);
  const folder = dirname(target.path);
  const draft = `${folder}/${draftName()}`;
  // 0600 until it has its owner: what is half written is nobody else's to read.
  const file = await open(draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
  return new ReplacingSink(options, target.path, draft, stats, file);
}
