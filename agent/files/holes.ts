// Where a file has data, and where holes, as far as its file system tells.
import { MAX_REGIONS, type Region } from "../../broker/contract/tar/sparse.ts";
import type { Folders } from "../native/folders.ts";
import { BLOCK_BYTES } from "./stat.ts";

/** As the kernel gives it: there is no more data behind. */
const ENXIO = -6;
/** Others have their turn after so many; each takes a microsecond. */
const REGIONS_A_TURN = 2048;

/** The regions of an open file that are not holes, as an archive has them: one of no length ends a file that ends in a hole.
 * Undefined where it has none, its file system does not tell, or there are no `folders` to ask it by. */
export async function regionsOf(
  fd: number,
  { size, blocks }: { size: number; blocks: number },
  folders: Folders | undefined,
  most = MAX_REGIONS,
): Promise<Region[] | undefined> {
  if (folders === undefined || blocks * BLOCK_BYTES >= size) return undefined;
  const map: Region[] = [];
  let end = 0;
  while (end < size && map.length < most - 1) {
    const offset = folders.seek(fd, end, "data");
    if (offset === ENXIO || offset >= size) break;
    const hole = offset < 0 ? offset : folders.seek(fd, offset, "hole");
    if (hole < 0) return undefined;
    map.push({ offset, length: Math.min(hole, size) - offset });
    end = Math.min(hole, size);
    if (map.length % REGIONS_A_TURN === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  // Of a file in very many pieces the rest goes whole.
  if (map.length === most - 1) map.push({ offset: end, length: size - end });
  else if (end < size) map.push({ offset: size, length: 0 });
  return map.length === 1 && map[0]?.length === size ? undefined : map;
}
