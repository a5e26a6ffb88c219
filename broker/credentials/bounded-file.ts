// Small files that a program is started with: settings, keys, credentials, a CA. Read to their end, and never without end.
import { closeSync, openSync, readSync } from "node:fs";
import { InvalidRequestError } from "../contract/core.ts";

/** What is larger is no such file, and perhaps has no end, such as /dev/zero. */
const AT_MOST_KIB = 1024;

/** The text of the file that the setting `field` names. Throws InvalidRequestError where it is too large, and the system's
 * errors. */
export function readBounded(path: string, field: string): string {
  const room = Buffer.allocUnsafe(AT_MOST_KIB * 1024 + 1);
  const file = openSync(path, "r");
  try {
    let length = 0;
    for (let got = -1; got !== 0 && length < room.length; length += got)
      got = readSync(file, room, length, room.length - length, null);
    if (length < room.length) return room.toString("utf8", 0, length);
  } finally {
    closeSync(file);
  }
  throw new InvalidRequestError(`${field}: ${path} is larger than ${AT_MOST_KIB} KiB`, { field });
}
