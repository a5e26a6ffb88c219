// What the program prints: tables for people, one JSON value for programs.
import { readFileSync, readlinkSync } from "node:fs";
import { FileError } from "../../broker/contract/index.ts";
import { localErrors } from "../typescript/files/local-errors.ts";
import { unlessAborted } from "../typescript/wire/pause.ts";

/** open(2), as /proc shows it. */
const O_CLOEXEC = 0o2000000;

export interface Output {
  readonly json: boolean;
  /** The result, on stdout: `value` as one line of JSON with --json, otherwise `text`. Throws as `write`. */
  result(value: unknown, text: string): Promise<void>;
  /** For people, on stderr, and not at all with --quiet or --json. Where that takes nothing there is nobody to tell. */
  note(text: string): void;
  /** Something that people and programs should know, on stderr, and not with --quiet. */
  warn(text: string): void;
}

export function createOutput(options: { json: boolean; quiet: boolean }, signal?: AbortSignal): Output {
  return {
    json: options.json,
    async result(value, text) {
      const line = options.json ? jsonLine(value) : text;
      if (line !== "") await write("stdout", line.endsWith("\n") ? line : `${line}\n`, signal);
    },
    note(text) {
      if (!options.json && !options.quiet) process.stderr.write(`${text}\n`);
    },
    warn(text) {
      if (!options.quiet) process.stderr.write(`sandmesh: ${yellow("warning")}: ${shown(text)}\n`);
    },
  };
}

/** JSON that is one line, however its reader splits text: Python's `splitlines` and others end lines at these, too, which
 * JSON lets stand. */
export const jsonLine = (value: unknown): string =>
  JSON.stringify(value).replace(
    /[\u0085\u2028\u2029]/g,
    (end) => `\\u${end.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );

/** Whether this process was started without one. Bun opens /dev/null in its place, and what is written there is lost
 * without a word; but as what ends at an exec, which nothing does that was handed over by one. */
const stdoutIsMissing = ((): boolean => {
  try {
    const [, flags = "0"] = /^flags:\s*([0-7]+)$/m.exec(readFileSync("/proc/self/fdinfo/1", "latin1")) ?? [];
    return (Number.parseInt(flags, 8) & O_CLOEXEC) !== 0 && readlinkSync("/proc/self/fd/1") === "/dev/null";
  } catch {
    return false;
  }
})();

/** For a program's start: what stdout or stderr does not take is told to who writes. Without a listener it would end this
 * process before anything is released. */
export function tellByWrites(): void {
  for (const stream of [process.stdout, process.stderr]) stream.on("error", () => undefined);
}

/** Waits until a slow reader of ours has taken it, so that back-pressure reaches a command. Throws FileError where it is
 * not taken: the disk is full, there is no stdout (`>&-`), or the reader has gone (EPIPE); CanceledError where the signal
 * aborts before. */
export function write(
  name: "stdout" | "stderr",
  data: Uint8Array | string,
  signal?: AbortSignal,
): Promise<void> {
  if (name === "stdout" && stdoutIsMissing)
    return Promise.reject(new FileError("stdout, on this machine: EBADF: it is closed", { reason: "EBADF" }));
  const stream = process[name];
  const taken = new Promise<void>((resolve, reject) => {
    stream.write(data, (error) => (error ? reject(error) : resolve()));
  });
  return localErrors(name, () => unlessAborted(taken, signal));
}

const colored = process.stdout.isTTY === true && process.env.NO_COLOR === undefined;
const paint = (code: number) => (text: string) => (colored ? `\u001b[${code}m${text}\u001b[0m` : text);
export const bold = paint(1);
export const dim = paint(2);
export const red = paint(31);
export const green = paint(32);
const yellow = paint(33);

const STATE_COLORS: Partial<Record<string, typeof green>> = {
  leased: green,
  granted: green,
  lost: red,
  failed: red,
  expired: red,
  releasing: yellow,
};
/** How the name of a sandbox's state, or of an event, is shown. */
export const stateColor = (name: string): typeof green => STATE_COLORS[name] ?? ((text) => text);

/** "1 sandbox", "2 sandboxes", "0 processes". */
export const counted = (count: number, what: string): string =>
  `${count} ${what}${count === 1 ? "" : /[sx]$/.test(what) ? "es" : "s"}`;

// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const CONTROLS = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
/** Text from outside (a name, a reason, an error) as a terminal may get it: control characters, and those that turn the
 * direction of writing, are shown and not obeyed. Of `kept` none is. */
export const shown = (text: string, kept = ""): string =>
  text.replace(CONTROLS, (char) =>
    kept.includes(char) ? char : `\\x${char.charCodeAt(0).toString(16).padStart(2, "0")}`,
  );

/** A cell, and the colour that it has as a whole. */
function unpainted(cell: string): { paint: string; text: string } {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the escape character is what is looked for
  const [, paint = "", text = cell] = /^(\u001b\[\d+m)(.*)\u001b\[0m$/s.exec(cell) ?? [];
  return { paint, text: shown(text) };
}

const GAP = "  ";
/** A column is not made narrower than this. */
const NARROWEST = 12;

/** The widths of columns, the widest narrowed until all fit into `room` where that can be; `fixed` ones keep theirs. */
function fitted(natural: readonly number[], fixed: readonly boolean[], room: number): number[] {
  const widths = [...natural];
  const over = () => widths.reduce((sum, each) => sum + each + GAP.length, -GAP.length) - room;
  while (over() > 0) {
    const widest = Math.max(...widths.filter((_, column) => fixed[column] !== true));
    if (widest <= NARROWEST) break;
    const column = widths.findIndex((each, at) => each === widest && fixed[at] !== true);
    widths[column] = Math.max(NARROWEST, widest - 1);
  }
  return widths;
}

/** A cell's lines: broken between words, or within one that is longer than a line; its colour on each. */
function wrapped(cell: string, room: number): string[] {
  const { paint, text } = unpainted(cell);
  const lines = Bun.stringWidth(text) <= room ? [text] : Bun.wrapAnsi(text, room, { hard: true }).split("\n");
  return paint === "" ? lines : lines.map((line) => `${paint}${line}\u001b[0m`);
}

/** Columns, left-aligned but for those whose heading starts with ">", two spaces apart; on a terminal no wider than it
 * is, where that can be: those whose heading starts with "=" hold what is copied (ids), and are never broken. Widths are
 * a terminal's, where a wide character takes two places. A cell's text may come from outside. */
export function table(
  headings: readonly string[],
  rows: readonly (readonly string[])[],
  room: number = process.stdout.columns ?? Number.POSITIVE_INFINITY,
): string {
  const right = headings.map((heading) => heading.startsWith(">"));
  const fixed = headings.map((heading) => heading.startsWith("="));
  const titles = headings.map((heading) => bold(heading.replace(/^[>=]/, "")));
  const all = [titles, ...rows];
  const natural = titles.map((_, column) =>
    Math.max(...all.map((row) => Bun.stringWidth(unpainted(row[column] ?? "").text))),
  );
  const widths = fitted(natural, fixed, room);
  const broken = all.flatMap((row) => {
    const cells = widths.map((columnWidth, column) => wrapped(row[column] ?? "", columnWidth));
    const height = Math.max(...cells.map((lines) => lines.length));
    return Array.from({ length: height }, (_, at) => cells.map((lines) => lines[at] ?? ""));
  });
  const line = (row: readonly string[]): string =>
    widths
      .map((columnWidth, column) => {
        const cell = row[column] ?? "";
        const pad = " ".repeat(columnWidth - Bun.stringWidth(cell));
        return right[column] ? pad + cell : cell + pad;
      })
      .join(GAP)
      .trimEnd();
  return broken.map(line).join("\n");
}

/** "850 ms", "12.3 s", "4 min", "3 h": for ages and durations, given in milliseconds. */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 3_600_000) return `${Math.round(ms / 60_000)} min`;
  return `${Math.round(ms / 3_600_000)} h`;
}
