// A file that ends before the size that it had when it was opened.
import type { Stats } from "node:fs";
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
