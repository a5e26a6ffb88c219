// What getdents64(2) puts into a buffer.

/** Some 1,000 entries. */
export const PIECE_BYTES = 32 * 1024;
/** Where in an entry its length, its kind and its name are. */
const AT = { length: 16, kind: 18, name: 19 } as const;
/** Kinds; a file system that does not tell them says 0 of all. */
export const DT_UNKNOWN = 0;
export const DT_DIR = 4;
export const DT_REG = 8;
const DOT = 0x2e;

/** Calls `tell` for each entry, but the folder itself and the one above, with where its name is. */
export function eachEntry(
  piece: Buffer,
  length: number,
  tell: (kind: number, begin: number, end: number) => void,
): void {
  for (let at = 0; at < length; at += piece.readUInt16LE(at + AT.length)) {
    const begin = at + AT.name;
    const end = piece.indexOf(0, begin);
    if (piece[begin] === DOT && (end === begin + 1 || (end === begin + 2 && piece[begin + 1] === DOT)))
      continue;
    tell(piece[at + AT.kind] ?? DT_UNKNOWN, begin, end);
  }
}
