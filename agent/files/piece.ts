// Pieces of an archive that is packed: an entry's header, and what follows it.
import { paddingOf, type TarEntry, tarHeader } from "../../broker/contract/tar/header.ts";
import type { Region } from "../../broker/contract/tar/sparse.ts";
import { type Opened, refuseCutOff } from "./shorter.ts";

/** An entry's header, and the open file of which these regions follow. */
export interface Piece {
  header: Buffer;
  opened?: Opened;
  regions: Region[];
}

export const plain = (entry: TarEntry): Piece => ({ header: tarHeader(entry), regions: [] });

/** Header, content and padding. */
export function inOne(entry: TarEntry, content: Buffer): Piece {
  const header = tarHeader({ ...entry, size: content.length });
  return { header: Buffer.concat([header, content, Buffer.alloc(paddingOf(content.length))]), regions: [] };
}

/** All of a small file. Throws FileError with the reason ESTALE where it is cut off meanwhile. */
export async function contentOf(opened: Opened): Promise<Buffer> {
  const content = Buffer.alloc(opened.began.size);
  let at = 0;
  while (at < content.length) {
    const { bytesRead } = await opened.file.read(content, at, content.length - at, at);
    if (bytesRead === 0) break;
    at += bytesRead;
  }
  if (at < content.length) await refuseCutOff("pack", opened);
  return content.subarray(0, at);
}
