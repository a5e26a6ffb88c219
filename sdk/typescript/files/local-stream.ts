// What is read of this machine as it comes: a pipe, a fifo or a terminal. That is never waited for in a call to the kernel: no
// signal would be heard there, and the process could not end.
import { constants } from "node:fs";
import { type FileHandle, lstat, open, readlink, realpath } from "node:fs/promises";
import { posix } from "node:path";
import { pause, throwIfAborted } from "../wire/pause.ts";
import { localErrors, systemErrno } from "./local-errors.ts";

/** How soon it is tried again, ms: doubled while nothing comes. */
const FIRST_PAUSE_MS = 1;
const LONGEST_PAUSE_MS = 50;
/** A pipe's usual room. */
const PART_BYTES = 64 * 1024;
/** Linux's own limit of links in a row. */
const MOST_LINKS = 40;
const AS_BYTES = { encoding: "buffer" } as const;

/** Whether a path is a link that leads by a process's descriptor, as /dev/stdin, /dev/fd/N and <(…) do: as a link it means
 * nothing elsewhere. */
export async function isByDescriptor(path: Buffer): Promise<boolean> {
  // Latin-1 keeps every byte of a name that is no UTF-8.
  let at = path.toString("latin1");
  const bytes = (text: string) => Buffer.from(text, "latin1");
  try {
    for (let links = 0; links < MOST_LINKS; links++) {
      const folder = (await realpath(bytes(posix.dirname(at)), AS_BYTES)).toString("latin1");
      // Also of one that is closed: that is told, and no link made to it.
      if (/^\/proc\/\d+(\/task\/\d+)?\/fd$/.test(folder)) return true;
      if (!(await lstat(bytes(at))).isSymbolicLink()) return false;
      const target = (await readlink(bytes(at), AS_BYTES)).toString("latin1");
      at = target.startsWith("/") ? target : `${folder}/${target}`;
    }
  } catch (error) {
    // A link that leads nowhere is one as any other.
    if (systemErrno(error) === undefined) throw error;
  }
  return false;
}

/** All that comes, to its end. `isOpen`: a writer has opened it already; else a fifo's is waited for. Throws CanceledError
 * where the signal aborts. */
export async function* readSpecial(
  path: Buffer,
  isOpen: boolean,
  signal: AbortSignal | undefined,
): AsyncGenerator<Uint8Array, void, void> {
  const flags = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY;
  const file = await localErrors(path, () => open(path, flags));
  try {
    // Of a fifo nothing comes, too, as long as no writer has opened it.
    let hasWriter = isOpen;
    for (let pauseMs = FIRST_PAUSE_MS; ; ) {
      const part = await localErrors(path, () => readNow(file));
      if (part?.length === 0 && hasWriter) return;
      hasWriter ||= part?.length !== 0;
      if (part !== undefined && part.length > 0) {
        yield part;
        pauseMs = FIRST_PAUSE_MS;
        continue;
      }
      await pause(pauseMs, signal);
      throwIfAborted(signal);
      pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS);
    }
  } finally {
    await file.close();
  }
}

/** What is there, empty at the end; undefined where some may come. */
async function readNow(file: FileHandle): Promise<Uint8Array | undefined> {
  const part = Buffer.allocUnsafe(PART_BYTES);
  try {
    return part.subarray(0, (await file.read(part, 0, part.length, null)).bytesRead);
  } catch (error) {
    if (systemErrno(error) === "EAGAIN") return undefined;
    throw error;
  }
}
