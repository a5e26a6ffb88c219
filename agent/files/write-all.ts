// One write(2) may take less than it was given.
import type { FileHandle } from "node:fs/promises";

/** Writes all of `data` at the file's own position. */
export async function writeAll(file: FileHandle, data: Uint8Array): Promise<void> {
  for (let at = 0; at < data.length; ) {
    const { bytesWritten } = await file.write(data, at, data.length - at);
    at += bytesWritten;
  }
}
