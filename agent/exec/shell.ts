// The image's shell: the best there is.
import { accessSync, constants } from "node:fs";
import { join } from "node:path";

const DEFAULT_FOLDERS = ["/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin"];

/** A shell, and how it is called: busybox without its links needs the name of its applet. */
export interface Shell {
  name: string;
  argv: string[];
}
const CANDIDATES: readonly [file: string, applet?: string][] = [
  ["bash"],
  ["sh"],
  ["dash"],
  ["ash"],
  ["zsh"],
  ["ksh"],
  ["busybox", "sh"],
];

function executable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** The shells of the image, best first; looked for in the usual folders, then in `path` (as PATH). */
export function findShells(path: string | undefined): Shell[] {
  const folders = new Set([...DEFAULT_FOLDERS, ...(path ?? "").split(":").filter((f) => f.startsWith("/"))]);
  const found: Shell[] = [];
  for (const [file, applet] of CANDIDATES) {
    for (const folder of folders) {
      const full = join(folder, file);
      if (!executable(full)) continue;
      found.push({
        name: applet === undefined ? file : `${file} ${applet}`,
        argv: applet ? [full, applet] : [full],
      });
      break;
    }
  }
  return found;
}
