// Where a path leads to, also one of which nothing is there yet: a folder that is yet to be made.
import { readlinkSync } from "node:fs";
import { dirname, isAbsolute, join, resolve } from "node:path";

/** As many links as the kernel follows in one path (path_resolution(7)). */
const MOST_LINKS = 40;

/** The absolute path without symbolic links, `.` and `..`, as the kernel would walk it: `..` behind a link is the target's
 * parent. What is not there, or may not be looked at, is taken as it stands; a loop of links is left to whoever opens it. */
export function realPath(path: string): string {
  const rest = path.split("/").reverse();
  let walked = isAbsolute(path) ? "/" : process.cwd();
  let links = 0;
  for (let name = rest.pop(); name !== undefined; name = rest.pop()) {
    if (name === "" || name === ".") continue;
    if (name === "..") {
      walked = dirname(walked);
      continue;
    }
    const next = join(walked, name);
    const target = linkAt(next);
    if (target === undefined) {
      walked = next;
      continue;
    }
    links += 1;
    if (links > MOST_LINKS) return resolve(path);
    if (isAbsolute(target)) walked = "/";
    rest.push(...target.split("/").reverse());
  }
  return walked;
}

/** Where a link leads to; undefined where there is none. */
function linkAt(path: string): string | undefined {
  try {
    return readlinkSync(path);
  } catch {
    return undefined;
  }
}
