// How each kind of shell is driven. Pure: texts only.
//
// The shell reads short lines from a pipe that only it has, as if a person typed them: it is interactive, so that an
// interrupt or an error brings it back to the next line, and an alias, an `exec` that fails or an unset variable does
// not end it. A command's own text stands in a file in memory which the line makes the shell source; it is never quoted,
// never parsed together with ours, and an open quote ends with the file. After it the shell writes "NONCE STATUS" to
// the status pipe: the nonce is new for each command and not known to the shell before the command is done, so that no
// output can pass for it. The pipe stays open while the command runs: a shell that had it closed for that time could not put
// it back where the command has lowered the limit of descriptors. What a command writes there is no report, and ends with
// the form feed that the next report begins with. (With a line end bash would write each report in two parts.)

export type DialectName = "bash" | "dash" | "ash" | "zsh" | "python";

/** What the six descriptors are that the shell is started with. */
export type Descriptor = "stdin" | "stdout" | "stderr" | "commands" | "status" | "text";

export interface CommandLine {
  nonce: string;
  /** What `$?` is to be when the command starts. */
  lastStatus: number;
  /** stderr into stdout. */
  merge: boolean;
  /** In a subshell, whose changes do not last. */
  apart: boolean;
}

export interface Dialect {
  /** Arguments behind the shell's own path. */
  readonly args: readonly string[];
  readonly descriptors: readonly Descriptor[];
  readonly env: Readonly<Record<string, string | null>>;
  /** Once, at the start. */
  readonly setup: string;
  run(line: CommandLine): string;
  /** The shell remembers an interrupt until it is back, and one that comes when it is back would end it. */
  readonly interruptOnce: boolean;
  /** What stands in the file for the command `text`. */
  wrap?(text: string): string;
  /** Makes the shell say the nonce with `$?`. */
  sync(nonce: string): string;
}

export const quote = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;

const STDIN_FIRST: readonly Descriptor[] = ["stdin", "stdout", "stderr", "commands", "status", "text"];
/** Names that no one else uses, since they are seen by `declare -F`. */
const REPORT = "__sandmesh_report";
const STATUS_IS = "__sandmesh_status_is";

/** What differs between the POSIX-like ones. */
interface Parts {
  args: readonly string[];
  descriptors: readonly Descriptor[];
  setup: string;
  /** Sources the text. */
  source: string;
  /** Where our own lines' traces (set -x) go. */
  quiet: string;
  interruptOnce?: boolean;
  /** Around a command, where an interrupt would end the shell otherwise. */
  guard?(run: string): string;
  wrap?(text: string): string;
}

function posix(parts: Parts): Dialect {
  const report = (nonce: string): string => `{ ${REPORT} ${nonce}; } ${parts.quiet}`;
  return {
    args: parts.args,
    descriptors: parts.descriptors,
    env: { PS1: "", PS2: "" },
    setup: parts.setup,
    interruptOnce: parts.interruptOnce ?? false,
    ...(parts.wrap && { wrap: parts.wrap }),
    sync: (nonce) => `\n${report(nonce)}\n`,
    run({ nonce, lastStatus, merge, apart }) {
      const source = merge ? `{ ${parts.source}; } 2>&1` : parts.source;
      const run = apart ? `( ${source} )` : source;
      // In the branch of an `if`, since a failing command before it would end a shell with `set -e`.
      const start =
        lastStatus === 0 ? run : `if { ${STATUS_IS} ${lastStatus}; } ${parts.quiet}; then :; else ${run}; fi`;
      return `${parts.guard?.(start) ?? start}\n${report(nonce)}\n`;
    },
  };
}

const functions = (printf: string, status: string, last = ""): string =>
  `${STATUS_IS}() { return "$1"; }\n${REPORT}() { ${printf} '\\f%s %s\\n' "$1" "$?" >&${status}; ${last}}\n`;

/** The environment file, which images name to make a virtual environment's programs be there: a session begins where `bash
 * -c` begins. An interactive bash takes no notice of BASH_ENV (called `sh` it reads ENV by itself, as dash and busybox do). Its
 * value is expanded, and not looked for in PATH, as bash has it. Last of all, so that it may do what a command may. */
const BASH_ENV = `if [[ ! -o posix && -n $BASH_ENV ]]; then shopt -u sourcepath
eval '\\builtin . "'"$\{BASH_ENV//\\"/\\\\\\"}"'" <&197'
shopt -s sourcepath; fi
`;

/** Interactive for real, which bash only is when it reads commands from its stdin. In a sourced file it behaves as in a
 * script: no "[1] 4711" for a background job. PS1 and the like are cleared after each command (a virtual environment
 * sets them), for the prompt would come between the outputs. */
const BASH = posix({
  args: ["--noprofile", "--norc", "--noediting", "-i", "+H", "-s"],
  descriptors: ["commands", "stdout", "stderr", "stdin", "status", "text"],
  setup: `PS1= PS2=; set +m; set +o history; shopt -s execfail; unset HISTFILE TMOUT MAILCHECK
exec 197<&3 198<&5 199>&4 3<&- 4>&- 5<&-
${functions("builtin printf", "199", "PS0= PS1= PS2= PROMPT_COMMAND=; ")}${BASH_ENV}`,
  source: "\\builtin . /proc/self/fd/198 <&197",
  quiet: "2>&-",
});

/** Interactive with a script as input. Only one digit can name a descriptor, so 8 and 9 are taken. */
const dashLike = (): Dialect =>
  posix({
    args: ["-i", "+m", "/proc/self/fd/3"],
    descriptors: STDIN_FIRST,
    // Without `command`, an error in a special built-in would throw the rest of the line away.
    setup: `PS1= PS2=
exec 8<&5 9>&4 3<&- 4>&- 5<&-
${functions("command printf", "9", "PS1= PS2=; ")}`,
    source: "\\command . /proc/self/fd/8",
    quiet: "2>&-",
  });

/** zsh's way back from an error or an interrupt is the `always` block; outside of it an interrupt is the script's end. It has a
 * place in zsh's job table, as has each builtin that runs text (see ARCHITECTURE.md for what that costs). */
const guarded = (run: string): string =>
  `{ ${run}; } always { { TRY_BLOCK_ERROR=0 TRY_BLOCK_INTERRUPT=0; } 2>/dev/null; }`;
/** Its environment file, which `zsh -c` reads; `-f`, without which an interactive one reads others, too, leaves it out. */
const ZSHENV = "$" + "{ZDOTDIR:-$HOME}/.zshenv";

const ZSH = posix({
  args: ["-f", "-i", "+m", "/proc/self/fd/3"],
  descriptors: STDIN_FIRST,
  setup: `0=zsh PS1= PS2= RPS1=; setopt nobanghist nonomatch nobgnice nohup nocheckjobs interactivecomments
exec {__sandmesh_status}>&4 {__sandmesh_text}<&5 3<&- 4>&- 5<&-
${functions("builtin printf", "$__sandmesh_status", "PS1= PS2= RPS1=; ")}${guarded(`[[ ! -r ${ZSHENV} ]] || \\builtin . ${ZSHENV}`)}
`,
  source: "\\builtin . /proc/self/fd/$__sandmesh_text",
  // A file that ends too early is no error to zsh, a text for eval is; and a `return` belongs into a file.
  wrap: (text) => `\\builtin eval ${quote(text)}`,
  guard: guarded,
  quiet: "2>/dev/null",
  interruptOnce: true,
});

/** The Python driver, in python.ts: one line "run NONCE" or "sync NONCE" each. */
export const pythonDialect = (driver: string): Dialect => ({
  args: ["-c", driver],
  descriptors: STDIN_FIRST,
  env: {},
  setup: "",
  interruptOnce: false,
  run: ({ nonce, merge }) => `${merge ? "merge" : "run"} ${nonce}\n`,
  sync: (nonce) => `sync ${nonce}\n`,
});

export const SHELL_DIALECTS: Readonly<Record<Exclude<DialectName, "python">, Dialect>> = {
  bash: BASH,
  dash: dashLike(),
  ash: dashLike(),
  zsh: ZSH,
};

/** The kind of a shell by the name of its program (symlinks followed); undefined for one that is not known. */
export function dialectOf(program: string): DialectName | undefined {
  if (program === "bash" || program === "zsh" || program === "dash") return program;
  if (program === "rbash") return "bash";
  if (program === "ash" || program === "busybox" || program === "sh") return "ash";
  if (/^python3?(\.\d+)?$/.test(program)) return "python";
  return undefined;
}

/** In front of a command that has a folder or variables of its own; it runs in a subshell then. */
export function subshellPrelude(
  cwd: string | undefined,
  env: Readonly<Record<string, string | null>>,
): string {
  let text = cwd === undefined ? "" : `\\cd -- ${quote(cwd)} || exit\n`;
  for (const [name, value] of Object.entries(env))
    text += value === null ? `unset ${name}\n` : `export ${name}=${quote(value)}\n`;
  return text;
}
