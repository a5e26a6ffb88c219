// Writing a file so that nobody sees half of it: into a hidden file beside it, which takes its place at the end.
import { constants, type Stats } from "node:fs";
import { type FileHandle, lstat, open, readlink, rename, rm } from "node:fs/promises";
import { dirname } from "node:path";
import { errnoOf } from "../../broker/contract/index.ts";
import { utimeOf } from "../../broker/contract/tar/utime.ts";
import type { ByteSink, WriteOptions } from "../../broker/endpoint/executor.ts";
import { draftName } from "./draft.ts";
import { fileFault, toFileError } from "./error.ts";
import { type Ground, type Held, makeParents } from "./ground.ts";
import { openToRead } from "./open.ts";
import { MAX_SYMLINKS } from "./root.ts";
import { UNWAITING } from "./unwaiting.ts";
import { writeAll } from "./write-all.ts";

const { O_WRONLY, O_CREAT, O_EXCL, O_APPEND, O_NOFOLLOW, O_TRUNC } = constants;
const COPY_BYTES = 256 * 1024;
/** What a new file gets where the request names no mode: as open(2) would, by the daemon's umask. */
const newFileMode = (): number => 0o666 & ~process.umask();

/** What stands there; of a symlink the path that it has; undefined where nothing is. */
async function lookAt({ at }: Held): Promise<Stats | string | undefined> {
  try {
    const stats = await lstat(at);
    return stats.isSymbolicLink() ? await readlink(at) : stats;
  } catch (thrown) {
    if (errnoOf(thrown) !== "ENOENT") throw thrown;
    return undefined;
  }
}

interface Target {
  /** As links lead to it. */
  asked: string;
  held: Held;
  stats: Stats | undefined;
}

/** Where a write to `path` ends up: behind the symlinks that it consists of, whether or not the last one's target
 * exists. (Replacing the link itself would turn /etc/resolv.conf, say, into a file of its own.) */
async function followLinks(ground: Ground, path: string): Promise<Target> {
  let asked = path;
  for (let links = 0; links < MAX_SYMLINKS; links++) {
    const held = await ground.hold(asked);
    const found = await lookAt(held).catch(async (thrown: unknown) => {
      await held.close();
      throw thrown;
    });
    if (typeof found !== "string") return { asked, held, stats: found };
    await held.close();
    const target = asked.endsWith("/") ? `${found}/` : found;
    asked = target.startsWith("/") ? target : `${dirname(asked)}/${target}`;
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
  if (options.mtimeMs !== undefined) {
    const time = utimeOf(options.mtimeMs / 1000);
    await file.utimes(time, time);
  }
}

/** Appends, and writes to what cannot be replaced (a device, a file of /proc): nothing happens before the end. */
class DirectSink implements ByteSink {
  readonly #options: WriteOptions;
  readonly #held: Held;
  readonly #replaced: Stats | undefined;
  readonly #parts: Uint8Array[] = [];

  constructor(options: WriteOptions, held: Held, replaced: Stats | undefined) {
    this.#options = options;
    this.#held = held;
    this.#replaced = replaced;
  }

  async write(data: Uint8Array): Promise<void> {
    this.#parts.push(Uint8Array.from(data));
  }

  async finish(): Promise<void> {
    const { path, append, fsync, mode, uid, gid } = this.#options;
    try {
      // Links were followed: one that has come there since may lead out of a root.
      const flags = O_WRONLY | O_CREAT | O_NOFOLLOW | UNWAITING | (append ? O_APPEND : 0);
      const file = await open(this.#held.at, flags, mode ?? 0o666);
      try {
        await writeAll(file, Buffer.concat(this.#parts));
        const asked = mode !== undefined || uid !== undefined || gid !== undefined;
        if (this.#replaced === undefined || (asked && this.#replaced.isFile()))
          await dress(file, this.#options, this.#replaced);
        await setTime(file, this.#options);
        if (fsync) await file.sync();
      } finally {
        await file.close();
      }
    } catch (thrown) {
      throw toFileError(append ? "append to" : "write", path, thrown);
    } finally {
      await this.#held.close();
    }
  }

  async abort(): Promise<void> {
    this.#parts.length = 0;
    await this.#held.close();
  }
}

/** A new or replaced regular file. */
class ReplacingSink implements ByteSink {
  readonly #options: WriteOptions;
  readonly #held: Held;
  readonly #draft: string;
  readonly #replaced: Stats | undefined;
  readonly #file: FileHandle;
  #open = true;

  constructor(
    options: WriteOptions,
    held: Held,
    draft: string,
    replaced: Stats | undefined,
    file: FileHandle,
  ) {
    this.#options = options;
    this.#held = held;
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
      if (this.#options.fsync) await syncFolder(dirname(this.#held.at));
      await this.#held.close();
    });
  }

  async abort(): Promise<void> {
    if (this.#open) {
      this.#open = false;
      await this.#file.close();
    }
    await rm(this.#draft, { force: true });
    await this.#held.close();
  }

  async #place(): Promise<void> {
    try {
      await rename(this.#draft, this.#held.at);
    } catch (thrown) {
      // A file that is itself a mount point (/etc/hosts in a pod) cannot be replaced, only rewritten.
      if (errnoOf(thrown) !== "EBUSY" || this.#replaced === undefined) throw thrown;
      await copyInto(this.#draft, this.#held.at);
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
  await using target = await open(to, O_WRONLY | O_TRUNC | O_NOFOLLOW | UNWAITING);
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

/** Begins a write. Until `finish` nothing is visible at the path (an append and a write to a device take one part,
 * kept in memory). A symlink is written through. Throws FileError. */
export async function openForWriting(ground: Ground, options: WriteOptions): Promise<ByteSink> {
  const { path } = options;
  if (options.parents) await makeParents(ground, path);
  const target = await followLinks(ground, path);
  try {
    return await openTarget(target, options);
  } catch (thrown) {
    await target.held.close();
    throw thrown;
  }
}

async function openTarget({ asked, held, stats }: Target, options: WriteOptions): Promise<ByteSink> {
  const { path } = options;
  if (stats?.isDirectory() || asked.endsWith("/"))
    throw fileFault("EISDIR", `cannot write ${path}: it is a folder; name a file in it`);
  if (stats?.isFIFO() || stats?.isSocket())
    throw fileFault("EINVAL", `cannot write ${path}: it is a pipe or socket; write to it with a command`);
  const replaceable = stats === undefined || stats.isFile();
  if (options.append || !replaceable || held.isKernels) return new DirectSink(options, held, stats);
  const draft = `${dirname(held.at)}/${draftName()}`;
  // 0600 until it has its owner: what is half written is nobody else's to read.
  const file = await open(draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
  return new ReplacingSink(options, held, draft, stats, file);
}
