// For tests: what the kernel watches for this process.
import { readdirSync, readFileSync, readlinkSync } from "node:fs";

/** Folders and files; 0 where it has no inotify instance. (The engine may have a second descriptor of the one.) */
export function kernelWatches(): number {
  let most = 0;
  for (const fd of readdirSync("/proc/self/fd")) {
    try {
      if (readlinkSync(`/proc/self/fd/${fd}`) !== "anon_inode:inotify") continue;
      most = Math.max(most, readFileSync(`/proc/self/fdinfo/${fd}`, "utf8").split("inotify wd:").length - 1);
    } catch {
      // That of the listing itself, which is closed by now.
    }
  }
  return most;
}
