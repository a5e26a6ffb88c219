// Files of /proc, /sys and /etc that may not be there.
import { closeSync, constants, fstatSync, openSync, readFileSync } from "node:fs";
import { UNWAITING } from "../files/unwaiting.ts";

/** A file's text; undefined where it cannot be read, and where something else than a file stands there. */
export type Read = (path: string) => string | undefined;

/** More is no /etc/passwd, and would be as much memory of the daemon. */
const MAX_BYTES = 16 * 1024 * 1024;

export const readText: Read = (path) => {
  let file: number | undefined;
  try {
    file = openSync(path, constants.O_RDONLY | UNWAITING);
    const stats = fstatSync(file);
    return stats.isFile() && stats.size <= MAX_BYTES ? readFileSync(file, "utf8") : undefined;
  } catch {
    return undefined;
  } finally {
    if (file !== undefined) closeSync(file);
  }
};
