// Lines that contain a text: file by file in parts, so that a file of any size costs the same memory.
import type { SearchAnswer } from "../../broker/contract/index.ts";
import { openFile } from "../files/open.ts";

export type Match = SearchAnswer["matches"][number];

const PART_BYTES = 256 * 1024;
/** A file with NUL so early is no text; grep(1) looks at as much. */
const PROBE_BYTES = 8192;
/** Of a line that is told, around the match. */
const SHOWN_CHARACTERS = 500;
/** A longer line is looked at in pieces of this length. */
const MAX_LINE_BYTES = 1024 * 1024;

export interface Needle {
  text: string;
  ignoreCase: boolean;
  signal: AbortSignal;
}

/** Calls `tell` for each line of the file that contains the needle, until it answers false. Answers whether it went to
 * the file's end. Throws the errors of open(2) and read(2). */
export async function searchFile(
  path: string,
  shown: string,
  needle: Needle,
  tell: (line: number, text: string) => boolean,
): Promise<boolean> {
  await using file = await openFile("search", path, shown);
  const wanted = needle.ignoreCase ? needle.text.toLowerCase() : needle.text;
  const bytes = Buffer.from(needle.text);
  let rest = Buffer.alloc(0);
  let line = 1;
  for (let first = true; ; first = false) {
    needle.signal.throwIfAborted();
    const part = Buffer.allocUnsafe(PART_BYTES);
    const { bytesRead } = await file.read(part, 0, PART_BYTES, null);
    if (first && part.subarray(0, Math.min(bytesRead, PROBE_BYTES)).includes(0)) return true;
    const last = bytesRead === 0;
    const data = Buffer.concat([rest, part.subarray(0, bytesRead)]);
    const cut = last ? data.length : data.lastIndexOf(10) + 1;
    if (!last && cut === 0 && data.length < MAX_LINE_BYTES) {
      rest = data;
      continue;
    }
    const whole = data.subarray(0, cut === 0 ? data.length : cut);
    rest = data.subarray(whole.length);
    // Most parts of most files hold no match at all, which the bytes tell without taking lines apart.
    if (needle.ignoreCase || whole.includes(bytes)) {
      const lines = whole.toString().split("\n");
      if (lines.at(-1) === "") lines.pop();
      for (const [i, text] of lines.entries()) {
        const at = (needle.ignoreCase ? text.toLowerCase() : text).indexOf(wanted);
        if (at >= 0 && !tell(line + i, cutOut(text, at))) return false;
      }
    }
    line += countLines(whole);
    if (last) return true;
  }
}

function countLines(data: Buffer): number {
  let count = 0;
  for (let at = data.indexOf(10); at >= 0; at = data.indexOf(10, at + 1)) count++;
  return count;
}

function cutOut(text: string, at: number): string {
  if (text.length <= SHOWN_CHARACTERS) return text;
  const from = Math.max(0, Math.min(at - SHOWN_CHARACTERS / 4, text.length - SHOWN_CHARACTERS));
  return text.slice(from, from + SHOWN_CHARACTERS);
}
