// Writing to what stands on this machine: also a fifo, a terminal or a device, whose reader may let us wait for ever.
import { constants, type Stats } from "node:fs";
import { type FileHandle, open, stat, writeFile } from "node:fs/promises";
import { FileError } from "../../../broker/contract/index.ts";
import { hasName } from "../../../broker/credentials/bounded-file.ts";
import { ifReady, ifThere, localErrors, systemErrno } from "./local-errors.ts";
import { untilReady } from "./until-ready.ts";

/** What is neither file nor folder; it is written to as it stands, and nothing takes its place. */
export const isSpecial = (found: Stats | undefined): boolean =>
  found !== undefined && !found.isFile() && !found.isDirectory();

/** Writes to a fifo, a terminal or a device; a fifo's reader is waited for. Throws CanceledError where the signal aborts,
 * FileError with EPIPE where the reader has gone. */
export async function writeSpecial(
  path: string | Buffer,
  source: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  signal: AbortSignal | undefined,
): Promise<void> {
  const file = await openToWrite(path, signal);
  try {
    for await (const part of source) await writeWhole(file, part, signal);
  } finally {
    await file.close();
  }
}

/** A text as a file's whole content, written by `asFile`, or to the fifo, terminal or device that stands there. */
export async function writeText(
  path: string,
  text: string,
  signal: AbortSignal | undefined,
  asFile: (path: string, text: string) => void | Promise<void> = writeFile,
): Promise<void> {
  await localErrors(path, async () => {
    if (isSpecial(await ifThere(stat(path)))) await writeSpecial(path, [Buffer.from(text)], signal);
    else await asFile(path, text);
  });
}

async function openToWrite(path: string | Buffer, signal: AbortSignal | undefined): Promise<FileHandle> {
  const flags = constants.O_WRONLY | constants.O_NONBLOCK | constants.O_NOCTTY;
  return await untilReady(signal, async () => {
    try {
      return await open(path, flags);
    } catch (error) {
      // A fifo without a reader, fifo(7); of all else it is for good.
      if (systemErrno(error) !== "ENXIO" || !(await stat(path)).isFIFO()) throw error;
      if (!hasName(path)) throw new FileError(`${path}: its reader has gone`, { reason: "EPIPE" });
      return undefined;
    }
  });
}

async function writeWhole(
  file: FileHandle,
  data: Uint8Array,
  signal: AbortSignal | undefined,
): Promise<void> {
  for (let at = 0; at < data.length; )
    at += await untilReady(signal, () =>
      ifReady(async () => (await file.write(data, at, data.length - at, null)).bytesWritten),
    );
}
