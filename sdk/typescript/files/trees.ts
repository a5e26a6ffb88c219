// Files and folders between this machine and a sandbox.
import { createWriteStream } from "node:fs";
import { chmod, lstat, mkdir, rename, rm, stat, utimes } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { FileError, newUuidV7 } from "../../../broker/contract/index.ts";
import type { Abortable, Files } from "./files.ts";
import { ifThere, localErrors } from "./local-errors.ts";
import { localFile } from "./local-file.ts";
import { packFolder } from "./pack.ts";
import { Anew } from "./read.ts";
import { unpackFolder } from "./unpack.ts";

export interface UploadOptions extends Abortable {
  /** Told the path of each fifo, socket and device below the folder: they are left out. */
  skipped?: (path: string) => void;
}

export async function upload(
  files: Files,
  local: string,
  remote: string,
  { skipped, ...options }: UploadOptions,
): Promise<void> {
  const found = await localErrors(local, () => stat(local));
  if (found.isDirectory()) {
    await files.unpack(remote, packFolder(local, skipped), options);
  } else if (found.isFile()) {
    const mode = found.mode & 0o7777;
    const mtimeMs = Math.floor(found.mtimeMs);
    await files.write(remote, localFile(local), { ...options, mode, mtimeMs });
  } else {
    throw new FileError(`${local} is neither a file nor a folder`, { reason: "EINVAL" });
  }
}

export async function download(
  files: Files,
  remote: string,
  local: string,
  options: Abortable,
): Promise<void> {
  const found = await files.stat(remote, options);
  const anew = new Anew(options.signal);
  for (;;) {
    try {
      if (found.type === "dir") await unpackFolder(files.pack(remote, options), local);
      else await localErrors(local, () => downloadFile(files, remote, local, found, options));
      return;
    } catch (error) {
      await anew.after(error);
    }
  }
}

/** Under another name first, so that a half one is never taken for whole. */
async function downloadFile(
  files: Files,
  remote: string,
  local: string,
  found: { mode: number; mtime_ms: number },
  options: Abortable,
): Promise<void> {
  await mkdir(dirname(local), { recursive: true });
  const target = (await isFolder(local)) ? join(local, basename(remote)) : local;
  const half = join(dirname(target), `.${basename(target)}.${newUuidV7()}.part`);
  try {
    const source = Readable.from(files.readStream(remote, options));
    await pipeline(source, createWriteStream(half, { flags: "wx", mode: 0o600 }));
    await chmod(half, found.mode & 0o7777);
    await utimes(half, found.mtime_ms / 1000, found.mtime_ms / 1000);
    await rename(half, target);
  } finally {
    await rm(half, { force: true });
  }
}

async function isFolder(path: string): Promise<boolean> {
  return (await ifThere(lstat(path)))?.isDirectory() === true;
}
