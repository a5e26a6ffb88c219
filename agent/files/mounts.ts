// Which calls to the file systems of this machine may wait for another machine or program.
import { type Read, readText } from "../process/read-text.ts";

/** Those that answer from a disk or from memory; any other may be a network's or a program's (FUSE). */
const LOCAL = new Set(
  [
    "binfmt_misc bpf btrfs cgroup cgroup2 configfs debugfs devpts devtmpfs efivarfs erofs ext2 ext3 ext4",
    "f2fs fusectl hugetlbfs iso9660 mqueue nsfs overlay proc pstore ramfs securityfs selinuxfs squashfs sysfs tmpfs",
    "tracefs vfat xfs zfs",
  ].flatMap((names) => names.split(" ")),
);

/** Whether something is mounted that may not answer, beside the root, without which there is nothing anyway. */
export function mayWait(read: Read = readText): boolean {
  return mounts(read).some(({ mayWait }) => mayWait);
}

export interface Mount {
  /** The folder, or file. */
  at: string;
  type: string;
  /** It may not answer. */
  mayWait: boolean;
}

/** proc_pid_mountinfo(5). */
export function mounts(read: Read = readText): Mount[] {
  const found: Mount[] = [];
  for (const line of (read("/proc/self/mountinfo") ?? "").split("\n")) {
    const [before = "", after] = line.split(" - ");
    const at = before.split(" ")[4];
    if (after === undefined || at === undefined) continue;
    // Spaces and the like stand there as \040.
    const path = at.replace(/\\([0-7]{3})/g, (_, digits: string) =>
      String.fromCharCode(Number.parseInt(digits, 8)),
    );
    const type = after.split(" ", 1)[0] ?? "";
    found.push({ at: path, type, mayWait: path !== "/" && !LOCAL.has(type) });
  }
  return found;
}
