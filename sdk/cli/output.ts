// What the program prints: tables for people, one JSON value for programs.

export interface Output {
  readonly json: boolean;
  /** The result, on stdout: `value` as one line of JSON with --json, otherwise `text`. */
  result(value: unknown, text: string): void;
  /** For people, on stderr, and not at all with --quiet or --json. */
  note(text: string): void;
  /** Something that people and programs should know, on stderr, and not with --quiet. */
  warn(text: string): void;
}

export function createOutput(options: { json: boolean; quiet: boolean }): Output {
  return {
    json: options.json,
    result(value, text) {
      const line = options.json ? JSON.stringify(value) : text;
      if (line !== "") process.stdout.write(line.endsWith("\n") ? line : `${line}\n`);
    },
    note(text) {
      if (!options.json && !options.quiet) process.stderr.write(`${text}\n`);
    },
    warn(text) {
      if (!options.quiet) process.stderr.write(`sandmesh: ${yellow("warning")}: ${text}\n`);
    },
  };
}

const colored = process.stdout.isTTY === true && process.env.NO_COLOR === undefined;
const paint = (code: number) => (text: string) => (colored ? `\u001b[${code}m${text}\u001b[0m` : text);
export const bold = paint(1);
export const dim = paint(2);
export const red = paint(31);
export const green = paint(32);
export const yellow = paint(33);

/** Visible length: colours take no room. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: the escape character is what is looked for
const width = (text: string): number => text.replace(/\u001b\[\d+m/g, "").length;

/** Columns, left-aligned but for those whose heading starts with ">", two spaces apart. */
export function table(headings: readonly string[], rows: readonly (readonly string[])[]): string {
  const right = headings.map((heading) => heading.startsWith(">"));
  const titles = headings.map((heading) => bold(heading.replace(/^>/, "")));
  const all = [titles, ...rows];
  const widths = titles.map((_, column) => Math.max(...all.map((row) => width(row[column] ?? ""))));
  const line = (row: readonly string[]): string =>
    widths
      .map((columnWidth, column) => {
        const cell = row[column] ?? "";
        const pad = " ".repeat(columnWidth - width(cell));
        return right[column] ? pad + cell : cell + pad;
      })
      .join("  ")
      .trimEnd();
  return all.map(line).join("\n");
}

/** "850 ms", "12.3 s", "4 min", "3 h": for ages and durations, given in milliseconds. */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 3_600_000) return `${Math.round(ms / 60_000)} min`;
  return `${Math.round(ms / 3_600_000)} h`;
}
