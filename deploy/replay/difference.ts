// What kind of difference there is between an output and its recording, found by comparing the two.

type Line = (line: string) => string;

/** Not of the program's making: bash tells the end of its input in one line or in two, and at another line. */
const message: Line = (line) =>
  line
    .replace(/[‘’`]/g, "'")
    .replace(/\bline \d+:/g, "line:")
    .replace(/.*: syntax error: unexpected end of file$/, "");

const MONTH = "(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)";
const TIMES = [
  new RegExp(`\\b${MONTH} +\\d{1,2} +(\\d{4}\\b|\\d{1,2}:\\d{2}(:\\d{2})?)`, "g"),
  /\b\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d+)?)?)?/g,
  /\b\d{1,2}:\d{2}:\d{2}\b/g,
];
const time: Line = (line) =>
  TIMES.reduce((text, pattern) => text.replace(pattern, "TIME"), line).replace(/\s+/g, " ");

const number: Line = (line) => line.replace(/\d+(\.\d+)?[KMGT]?/g, "0");

interface Kind {
  about: string;
  lines: readonly Line[];
  sorted?: boolean;
}

const LOOSEST: Kind = {
  about: "numbers: sizes, counts, ids",
  lines: [message, time, number],
  sorted: true,
};
/** What is left out of the comparison grows from kind to kind: the first that makes both the same is the difference. */
const KINDS: readonly Kind[] = [
  { about: "messages: the same ones in another version's words", lines: [message] },
  { about: "time stamps: of files and clocks", lines: [message, time] },
  { about: "order: the same lines, in another one", lines: [message, time], sorted: true },
  LOOSEST,
];

function linesOf(text: string, { lines, sorted }: Kind): string[] {
  const all = text.split("\n").map((line) => lines.reduce((each, change) => change(each), line).trimEnd());
  const told = all.filter((line) => line !== "");
  return sorted === true ? told.sort() : told;
}

/** The kind, in words. `candidates`: the output, in each order in which it may have been recorded. */
export function describeDifference(recorded: string, candidates: readonly string[]): string {
  for (const kind of KINDS) {
    const wanted = linesOf(recorded, kind).join("\n");
    if (candidates.some((text) => linesOf(text, kind).join("\n") === wanted)) return kind.about;
  }
  const wanted = new Set(linesOf(recorded, LOOSEST));
  const shared = candidates.some((text) => linesOf(text, LOOSEST).some((line) => wanted.has(line)));
  return shared ? "lines that only one of them has: other files, other programs" : "other lines altogether";
}
