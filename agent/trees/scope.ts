// Where below a folder a pattern can match at all: what lies elsewhere is not read.

/** What has a meaning of its own in a pattern. */
const SPECIAL = /[*?[\]{}()|!+@^\\]/;
/** `**` and what is in parentheses, which may come repeatedly, match at any depth, and so does what `!` excepts from all. */
const ANY_DEPTH = /\*\*|\(|^!/;

/** Tells of a folder by its name, so many folders below the root (from 0), whether something in it may match. */
export function scopeOf(pattern: string): (name: string, depth: number) => boolean {
  const parts = pattern.split("/");
  const folders = parts.slice(0, -1);
  const isFixed = (part: string) => !SPECIAL.test(part) && !["", ".", ".."].includes(part);
  const open = folders.findIndex((part) => !isFixed(part));
  const fixed = open < 0 ? folders : folders.slice(0, open);
  // A class of characters may stand for a slash: `[!x]` does.
  const classes = pattern.split("[").length - 1;
  const deepest = ANY_DEPTH.test(pattern) ? Number.POSITIVE_INFINITY : folders.length + classes;
  return (name, depth) => depth < deepest && (fixed[depth] ?? name) === name;
}
