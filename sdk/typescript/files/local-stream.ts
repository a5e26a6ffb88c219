// What is read of this machine as it comes: a pipe, a fifo or a terminal.
import { constants } from "node:fs";
import { type FileHandle, lstat, open, readlink, realpath } from "node:fs/promises";
import { posix } from "node:path";
import { ifReady, localErrors, systemErrno } from "./local-errors.ts";
import { untilReady } from "./until-ready.ts";

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
    const next = async () => {
      const part = await ifReady(() => readPart(file));
      hasWriter ||= part?.length !== 0;
      return hasWriter ? part : undefined;
    };
    for (;;) {
      const part = await localErrors(path, () => untilReady(signal, next));
      if (part.length === 0) return;
      yield part;
    }
  } finally {
    await file.close();
  }
}

/** What is there, empty at the end. */
async function readPart(file: FileHandle): Promise<Uint8Array> {
  const part = Buffer.allocUnsafe(PART_BYTES);
  return part.subarray(0, (await file.read(part, 0, part.length, null)).bytesRead);
}
