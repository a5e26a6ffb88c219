// A file of this machine, read as it is sent.
import { constants } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { FileError } from "../../../broker/contract/index.ts";
import { localErrors } from "./local-errors.ts";

const PART_BYTES = 256 * 1024;

/** The bytes from where `file` stands, or `from` on, at most `atMost`. Throws FileError that names the file where it ends before
 * `atLeast`: someone cut it off meanwhile, and what was read never stood in it. */
export async function* contentOf(
  file: FileHandle,
  path: string | Buffer,
  { atLeast, atMost, from }: { atLeast: number; atMost: number; from?: number },
): AsyncGenerator<Uint8Array, void, void> {
  let total = 0;
  while (total < atMost) {
    const position = from === undefined ? null : from + total;
    const part = Buffer.allocUnsafe(Math.min(PART_BYTES, atMost - total));
    const { bytesRead } = await localErrors(path, () => file.read(part, 0, part.length, position));
    if (bytesRead === 0) break;
    total += bytesRead;
    yield part.subarray(0, bytesRead);
  }
  if (total < atLeast)
    throw new FileError(`${path}, on this machine: became shorter while it was read`, { reason: "ESTALE" });
}

/** A file to its end, also one that grows or does not tell its size, as those of /proc. */
export async function* localFile(path: string | Buffer): AsyncGenerator<Uint8Array, void, void> {
  // Should something else have taken its place since it was looked at: a fifo is not waited for.
  const file = await localErrors(path, () => open(path, constants.O_RDONLY | constants.O_NONBLOCK));
  try {
    const found = await localErrors(path, () => file.stat());
    if (!found.isFile())
      throw new FileError(`${path}, on this machine: is not a file any more`, { reason: "EINVAL" });
    const { size } = found;
    yield* contentOf(file, path, { atLeast: size, atMost: Number.POSITIVE_INFINITY });
  } finally {
    await file.close();
  }
}
