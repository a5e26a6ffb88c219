// The limit of a sandbox's writable layer: a file system of that size in a sparse file, which the kernel holds by itself. In
// place of project quotas, which few disks are mounted with, and of counting now and then, which comes too late.
import { existsSync } from "node:fs";
import { InvalidRequestError, type SandboxSpec } from "../../../broker/contract/index.ts";

const MIB = 1024 ** 2;
/** What the file system's own tables and the names in /etc need, with room to do anything. */
const LEAST_BYTES = 16 * MIB;

/** What is missing here to hold it; undefined where nothing is. */
export function diskNeeds(root: boolean): string | undefined {
  if (!root) return "root";
  if (!existsSync("/dev/loop-control")) return "loop devices";
  return Bun.which("mke2fs", { PATH: `${process.env.PATH}:/usr/sbin:/sbin` }) === null
    ? "mke2fs (e2fsprogs)"
    : undefined;
}

/** Throws InvalidRequestError where nothing could run with so little. */
export function checkDisk({ disk_bytes }: SandboxSpec): void {
  if (disk_bytes === undefined || disk_bytes >= LEAST_BYTES) return;
  throw new InvalidRequestError(`spec.disk_bytes must be at least ${LEAST_BYTES} (16 MiB) here`, {
    field: "spec.disk_bytes",
  });
}
