// Writing to what stands on this machine: also a fifo, a terminal or a device, whose reader may let us wait for ever. That is
// never waited for in a call to the kernel: no signal would be heard there, and the process could not end.
import { constants, type Stats } from "node:fs";
import { type FileHandle, open, realpath, stat, writeFile } from "node:fs/promises";
import { FileError } from "../../../broker/contract/index.ts";
import { pause, throwIfAborted } from "../wire/pause.ts";
import { ifThere, localErrors, systemErrno } from "./local-errors.ts";

/** How soon it is tried again, ms: doubled while nothing is taken. */
const FIRST_PAUSE_MS = 1;
const LONGEST_PAUSE_MS = 50;

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

/** A text as a file's whole content, or to what stands there. */
export async function writeText(path: string, text: string, signal: AbortSignal | undefined): Promise<void> {
  await localErrors(path, async () => {
    if (isSpecial(await ifThere(stat(path)))) await writeSpecial(path, [Buffer.from(text)], signal);
    else await writeFile(path, text);
  });
}

async function openToWrite(path: string | Buffer, signal: AbortSignal | undefined): Promise<FileHandle> {
  const flags = constants.O_WRONLY | constants.O_NONBLOCK | constants.O_NOCTTY;
  return await again(signal, async () => {
    try {
      return await open(path, flags);
    } catch (error) {
      // A fifo without a reader, fifo(7); of all else it is for good.
      if (systemErrno(error) !== "ENXIO" || !(await stat(path)).isFIFO()) throw error;
      if (!(await hasName(path))) throw new FileError(`${path}: its reader has gone`, { reason: "EPIPE" });
      return undefined;
    }
  });
}

/** Whether others can open a fifo: of a pipe that is known by a descriptor alone, such as /dev/stdout, the other end does
 * not come back. */
export const hasName = async (path: string | Buffer): Promise<boolean> =>
  await realpath(path).then(
    (real) => real.startsWith("/"),
    () => false,
  );

async function writeWhole(
  file: FileHandle,
  data: Uint8Array,
  signal: AbortSignal | undefined,
): Promise<void> {
  for (let at = 0; at < data.length; )
    at += await again(signal, async () => {
      try {
        return (await file.write(data, at, data.length - at, null)).bytesWritten;
      } catch (error) {
        if (systemErrno(error) !== "EAGAIN") throw error;
        return undefined;
      }
    });
}

/** What `work` answers, which is tried again as long as that is undefined. */
async function again<T>(signal: AbortSignal | undefined, work: () => Promise<T | undefined>): Promise<T> {
  for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS)) {
    const answer = await work();
    if (answer !== undefined) return answer;
    await pause(pauseMs, signal);
    throwIfAborted(signal);
  }
}
