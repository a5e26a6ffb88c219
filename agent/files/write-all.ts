// One write(2) may take less than it was given.
import type { FileHandle } from "node:fs/promises";

/** Writes all of `data` at `position`, or the file's own. */
export async function writeAll(file: FileHandle, data: Uint8Array, position?: number): Promise<void> {
  for (let at = 0; at < data.length; ) {
    const { bytesWritten } = await file.write(
      data,
      at,
      data.length - at,
      position === undefined ? null : position + at,
    );
    at += bytesWritten;
  }
}
