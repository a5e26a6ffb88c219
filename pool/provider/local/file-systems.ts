// Which file systems hold data, and which are the kernel's own interface: what is shown of one of those is more than files.
// In a procfs /proc/PID/root leads to any process's root, also through a read-only mount, and the kernel asks for no more than
// the same user and capabilities, which all sandboxes of root's have.
import { readFileSync } from "node:fs";

/** Those that lie on no disk of this machine's. Named are these and not the kernel's own (proc, sysfs, cgroup2, nsfs, …),
 * since a kernel to come has more of those, and what is not known must not be let in. */
const WITHOUT_DISK = [
  "tmpfs ramfs rootfs overlay aufs unionfs ecryptfs zfs bcachefs ubifs autofs",
  "fuse virtiofs 9p drvfs vboxsf vmhgfs prl_fs",
  "nfs nfs4 cifs smb3 ceph afs coda lustre beegfs gpfs wekafs orangefs pvfs2 panfs",
].flatMap((names) => names.split(" "));

/** The types that a mount of data has; FUSE's come with the name of what serves them (`fuse.sshfs`). */
export function dataTypes(): string[] {
  const lines = readFileSync("/proc/filesystems", "utf8").split("\n");
  // proc(5): "nodev" stands before those that need no block device.
  return [...WITHOUT_DISK, ...lines.flatMap((line) => /^\t(\S+)$/.exec(line)?.[1] ?? [])];
}

export const isData = (type: string, known: readonly string[] = dataTypes()): boolean =>
  known.includes(type.split(".")[0] ?? "");
