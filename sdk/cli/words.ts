// Words of the command line: those that are another program's, from the first of which on nothing is an option of ours,
// those that a shell is to read, and those that are no text.
import { isUtf8 } from "node:buffer";
import { readFileSync } from "node:fs";
import type { Command, Option } from "commander";
import { InvalidRequestError } from "../../broker/contract/index.ts";

/** Makes all words from the `from`th operand on (0: the first) the operands of `command`, whatever they look like. */
export function passWordsOn(command: Command, from: number): Command {
  const parse = command.parseOptions.bind(command);
  command.parseOptions = (argv) => parse(endOptions(argv, command.options, from));
  return command;
}

/** The words that are neither options nor their values. */
export function operandsOf(words: readonly string[], options: readonly Option[]): string[] {
  const operands: string[] = [];
  for (let at = 0; at < words.length; at++) {
    const word = words[at] ?? "";
    if (!word.startsWith("-")) operands.push(word);
    else if (takesNext(word, options)) at++;
  }
  return operands;
}

/** `argv` with "--" in front of its `from`th operand, where none stands before that. */
function endOptions(argv: string[], options: readonly Option[], from: number): string[] {
  let operands = 0;
  for (let at = 0; at < argv.length; at++) {
    const word = argv[at] ?? "";
    if (word === "--") return argv;
    if (word.startsWith("-") && word.length > 1) {
      if (takesNext(word, options)) at++;
    } else if (operands++ === from) {
      return [...argv.slice(0, at), "--", ...argv.slice(at)];
    }
  }
  return argv;
}

/** Whether the word behind this one is its value. */
function takesNext(word: string, options: readonly Option[]): boolean {
  const known = (flag: string) => options.find(({ long, short }) => long === flag || short === flag);
  if (word.startsWith("--")) return known(word)?.required === true;
  // Of "-itT" the first that takes a value takes the rest of the word, or the next one.
  for (let at = 1; at < word.length; at++) {
    if (known(`-${word[at]}`)?.required === true) return at === word.length - 1;
  }
  return false;
}

/** What means itself to bash, dash, busybox and zsh wherever it stands. Not "=": zsh has `=PROGRAM`, and at a line's start
 * it would set a variable. */
const PLAIN = /^[\w./:,@+-]+$/;

/** The line that runs them in a shell of POSIX's kind: of one word the word itself, as a person types it; of several each is
 * one word to the shell, too. Those that mean themselves stay bare: a quoted one names no alias. Throws
 * InvalidRequestError for a NUL. */
export function shellLine(words: readonly string[]): string {
  const [only = ""] = words;
  return words.length > 1 ? words.map(quoted).join(" ") : only;
}

function quoted(word: string): string {
  if (word.includes("\0"))
    throw new InvalidRequestError("command: no word can have a NUL in it", { field: "command" });
  return PLAIN.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** The bytes of one of this process's arguments; as text those that are no UTF-8 became U+FFFD. */
export function bytesOfArgument(text: string): Buffer {
  if (!text.includes("\ufffd")) return Buffer.from(text);
  return given("cmdline").find((each) => each.toString() === text) ?? Buffer.from(text);
}

/** Whether the argument is what it seems as text. */
export const isText = (text: string): boolean => isUtf8(bytesOfArgument(text));

/** Refuses arguments that are no UTF-8, of all commands but `except`: as text they would arrive as others. */
export function onlyText(program: Command, except: string): void {
  program.hook("preAction", (_, command) => {
    const other = command.name() === except ? undefined : process.argv.slice(2).find((word) => !isText(word));
    if (other !== undefined)
      command.error(
        `error: the argument ${JSON.stringify(other)} is no UTF-8; files with such names are for cp`,
      );
  });
}

/** Whether a variable of this process's environment is what it seems as text. */
export const isTextVariable = (name: string): boolean => {
  const start = Buffer.from(`${name}=`);
  return given("environ").every((each) => !each.subarray(0, start.length).equals(start) || isUtf8(each));
};

/** The arguments, or the environment, as the kernel has them; none where it does not tell. */
function given(what: "cmdline" | "environ"): Buffer[] {
  try {
    const all = readFileSync(`/proc/self/${what}`).toString("latin1");
    return all.split("\0").map((each) => Buffer.from(each, "latin1"));
  } catch {
    return [];
  }
}
