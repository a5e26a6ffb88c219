// A file that ends before the size that it had when it was opened.
import type { Stats } from "node:fs";
import type { FileHandle } from "node:fs/promises";
import type { FileError } from "../../broker/contract/index.ts";
import { fileFault } from "./error.ts";

/** What is read of a file that is cut off meanwhile never stood in it; `doing` is a verb: "read". */
export function becameShorter(doing: string, path: string): FileError {
  return fileFault(
    "ESTALE",
    `cannot ${doing} ${path}: it became shorter while it was read; try again when nothing writes it (ESTALE)`,
  );
}

/** Whether a file that was `began` when it was opened, and ended before that size, has been cut off, by what it is `now`; it may
 * have grown again. Otherwise its size says nothing: of /sys it is a page whatever a file holds, in no blocks. */
export function wasCutOff(began: Stats, now: Stats): boolean {
  return now.size < began.size || now.blocks > 0 || now.ctimeMs !== began.ctimeMs;
}

/** An open file, as it was when it was opened, and its path for errors. */
export interface Opened {
  file: FileHandle;
  began: Stats;
  path: string;
}

/** Where the file ended before its size. Throws FileError with the reason ESTALE, unless that size said nothing. */
export async function refuseCutOff(doing: string, { file, began, path }: Opened): Promise<void> {
  if (wasCutOff(began, await file.stat())) throw becameShorter(doing, path);
}
