// Files of /proc, /sys and /etc that may not be there.
import { readFileSync } from "node:fs";

/** A file's text; undefined where it cannot be read. */
export type Read = (path: string) => string | undefined;

export const readText: Read = (path) => {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
};
