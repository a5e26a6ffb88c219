// Whether a command for a session ends in the middle: an open quote, bracket, `if` or here-document. A cheap look, which
// may suspect too much, picks the few texts that are worth asking the shell itself (`-n`, some ms), before any of it runs.
import { check, ExecRequest, newUuidV7 } from "../../broker/contract/index.ts";
import { Command } from "../exec/command.ts";
import { BaseEnvironment, packRequest } from "../exec/request.ts";
import type { Engine } from "../native/engine.ts";
import type { Environment } from "../process/environment.ts";
import type { SessionShell } from "./shells.ts";

/** A shell that takes longer to parse, ms, runs the text as it is. */
const PARSE_MS = 2_000;

const count = (text: string, what: RegExp): number => text.match(what)?.length ?? 0;
const PAIRS: readonly [open: RegExp, close: RegExp][] = [
  [/\(/g, /\)/g],
  [/\{/g, /\}/g],
  [/\bif\b/g, /\bfi\b/g],
  [/\bdo\b/g, /\bdone\b/g],
  [/\bcase\b/g, /\besac\b/g],
  [/\b(?:for|while|until|select)\b/g, /\bdone\b/g],
];

/** Whether a quote is open at the end, by a scan that knows quotes, escapes and comments, and not what stands in `$()`. */
function endsQuoted(text: string): boolean {
  let quote = "";
  for (let i = 0; i < text.length; i++) {
    const at = text[i] ?? "";
    if (at === "\\" && quote !== "'") i++;
    else if (quote !== "") {
      if (at === quote) quote = "";
    } else if (at === "'" || at === '"' || at === "`") quote = at;
    else if (at === "#" && /^$|\s/.test(text[i - 1] ?? "")) {
      const end = text.indexOf("\n", i);
      if (end < 0) return false;
      i = end;
    }
  }
  return quote !== "";
}

/** Whether some here-document's last line is not there. */
function lacksHereEnd(text: string): boolean {
  for (const [, tabs, , word, plain] of text.matchAll(
    /(?<!<)<<(?!<)(-?)[ \t]*(?:(["'])(.*?)\2|\\?([^\s;|&<>()"'`]+))/g,
  )) {
    const wanted = word ?? plain ?? "";
    const ends = (line: string): boolean => (tabs ? line.replace(/^\t+/, "") : line) === wanted;
    if (!text.split("\n").some(ends)) return true;
  }
  return false;
}

/** Whether it is worth asking the shell. Pure. */
export function mayBeIncomplete(text: string): boolean {
  if (endsQuoted(text)) return true;
  for (const [open, close] of PAIRS) if (count(text, open) !== count(text, close)) return true;
  if (/(?:\||&&)\s*$/.test(text)) return true;
  return text.includes("<<") && lacksHereEnd(text);
}

/** What bash, dash, busybox and zsh say (in English) of a text that ended too early. */
const ENDS_EARLY =
  /unexpected EOF|unexpected end of file|end of file unexpected|unterminated quoted|EOF in backquote|missing '(?:\}|\)\))'|^\S+ unmatched ['"`]|closing brace expected|here-document .* delimited by end-of-file/im;

export interface ParserOptions {
  engine: Engine;
  environment: Environment;
  shell: SessionShell;
}

/** What the shell says of a text that ends in the middle; undefined where it is whole, or wrong in another way. */
export async function incompleteBecause(options: ParserOptions, text: string): Promise<string | undefined> {
  const said = await parse(options, text);
  if (ENDS_EARLY.test(said)) return said.trim().split("\n")[0];
  if (said !== "" || !text.includes("<<")) return undefined;
  // Most shells take the end of the text for that of a here-document, silently. Then it swallows also what is wrong.
  const swallowed = (await parse(options, `${text}\n)\n`)) === "";
  return swallowed ? "a here-document has no end" : undefined;
}

/** What the shell's parser says; nothing where it is content, or could not be asked. Aliases of the session are not
 * known to it. */
function parse({ engine, environment, shell }: ParserOptions, text: string): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  const parts: Uint8Array[] = [];
  const id = newUuidV7();
  const argv = [...shell.argv, "-n"];
  const env = { LC_ALL: "C", BASH_ENV: null, ENV: null, ZDOTDIR: "/nowhere" };
  const request = check(ExecRequest, {
    argv,
    env,
    stdin: Buffer.from(text),
    timeout_ms: PARSE_MS,
    grace_ms: 0,
  });
  const sink = {
    started() {},
    output: (stream: "stdout" | "stderr", data: Uint8Array) => void (stream === "stderr" && parts.push(data)),
    ended: () => resolve(Buffer.concat(parts).toString()),
    fail: () => resolve(""),
  };
  const attempt = { program: argv[0] ?? "", cwd: "/", user: undefined };
  const oom = { look() {}, claim: () => undefined };
  const command = new Command(id, request, attempt, sink, { engine, oom, done() {} });
  const packed = packRequest(
    request,
    { id, argv, cwd: "/", user: undefined, stdin: true },
    new BaseEnvironment(environment),
  );
  if (command.start(packed, request) < 0) resolve("");
  return promise;
}
