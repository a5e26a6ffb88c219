// The holes of a file of this machine. Node has no lseek(2), which would tell them, so zeros are looked for, in such a file as
// has fewer blocks on the disk than its size needs: some seconds for 10 GB of them.
import type { FileHandle } from "node:fs/promises";
import { MAX_REGIONS, type Region } from "../../../broker/contract/tar/sparse.ts";
import { localErrors } from "./local-errors.ts";

const PART_BYTES = 1024 * 1024;
/** A page, and most file systems' block. */
const STEP_BYTES = 4096;
const ZEROS = Buffer.alloc(PART_BYTES);
/** Of stat(2)'s count. */
const DISK_BLOCK_BYTES = 512;

export const mayHaveHoles = ({ size, blocks }: { size: number; blocks: number }): boolean =>
  size - blocks * DISK_BLOCK_BYTES >= STEP_BYTES;

/** The regions that are not zeros, as an archive has them: one of no length ends a file that ends in zeros. Undefined where
 * there is none to leave out. */
export async function regionsOf(
  file: FileHandle,
  path: string | Buffer,
  found: { size: number; blocks: number },
): Promise<Region[] | undefined> {
  if (!mayHaveHoles(found)) return undefined;
  const { size } = found;
  const map: Region[] = [];
  const part = Buffer.allocUnsafe(PART_BYTES);
  for (let at = 0; at < size; ) {
    const want = Math.min(PART_BYTES, size - at);
    const { bytesRead } = await localErrors(path, () => file.read(part, 0, want, at));
    if (bytesRead === 0) break;
    addTo(map, part.subarray(0, bytesRead), at);
    at += bytesRead;
  }
  if (map.length >= MAX_REGIONS) {
    // Of a file in very many pieces the rest goes whole.
    const [first] = map.splice(MAX_REGIONS - 1);
    if (first !== undefined) map.push({ offset: first.offset, length: size - first.offset });
  }
  const last = map.at(-1);
  const end = last === undefined ? 0 : last.offset + last.length;
  if (end < size && map.length < MAX_REGIONS) map.push({ offset: size, length: 0 });
  return map.length === 1 && map[0]?.length === size ? undefined : map;
}

function addTo(map: Region[], part: Buffer, at: number): void {
  if (part.equals(ZEROS.subarray(0, part.length))) return;
  for (let step = 0; step < part.length; step += STEP_BYTES) {
    const piece = part.subarray(step, step + STEP_BYTES);
    if (piece.equals(ZEROS.subarray(0, piece.length))) continue;
    const last = map.at(-1);
    if (last !== undefined && last.offset + last.length === at + step) last.length += piece.length;
    else map.push({ offset: at + step, length: piece.length });
  }
}
