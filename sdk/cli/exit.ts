// Exit codes of the `sandmesh` program.

/** Whose exit code is the command's own: sandmesh's is apart from it, also for wrong usage. */
const AS_THE_COMMAND = ["run", "exec", "shell"];

export const isAsTheCommand = (name: string): boolean => AS_THE_COMMAND.includes(name);

const OF_THE_COMMAND =
  "the command's own, 0 to 255; 128+n where signal n ended it, 124 on its time limit, 130 where Ctrl-C, SIGTERM or a closed terminal canceled it, 126 and 127 where it could not be run; 125 where sandmesh itself failed, or was used wrongly, as stderr says. A command may end with these numbers, too: --outcome FILE (and --json) tells for certain (`shell` has neither).";
/** What 3 is of those that can end with it. */
const NOT_FOUND: Partial<Record<string, string>> = {
  cp: "no such sandbox",
  logs: "no such sandbox or command",
  context: "no such sandbox",
  renew: "no such sandbox or run",
  release: "no such sandbox or run",
  down: "no mesh to end",
  "kubernetes user": "no keys there",
};
/** Those that end in order, and say so, where they are interrupted. */
const CANCELED = ["cp", "logs", "acquire", "ps", "renew", "release", "context", "drain"];
/** Those that go on until they are interrupted. */
const UNTIL_CANCELED = ["events"];

function ofAllElse(notFound: string | undefined, canceled: boolean, goesOn = false): string {
  const codes = [
    `0 done${goesOn ? ", also where Ctrl-C, SIGTERM or a closed terminal ended it" : ""}, 1 failed (also where the output cannot be written), 2 wrong usage`,
    ...(notFound === undefined ? [] : [`3 ${notFound}`]),
    ...(canceled ? ["130 canceled (by Ctrl-C, SIGTERM or a closed terminal)"] : []),
  ];
  return `${codes.join(", ")}; 141 where the reader of the output has gone.`;
}

/** What help says of the exit codes of the command that these words name; without any, of all. */
export function exitHelp(words: readonly string[]): string {
  const name = words.join(" ");
  if (name === "")
    return `Exit code: ${ofAllElse("no such sandbox or run, or no mesh to end", true)}\n\nOf run, exec and shell: ${OF_THE_COMMAND}`;
  return `Exit code: ${isAsTheCommand(name) ? OF_THE_COMMAND : ofAllElse(NOT_FOUND[name], CANCELED.includes(name), UNTIL_CANCELED.includes(name))}`;
}

/** What they say stands in `exitHelp`. */
export const EXIT = {
  ok: 0,
  failed: 1,
  usage: 2,
  notFound: 3,
  sandmeshFailed: 125,
  canceled: 130,
  brokenPipe: 141,
} as const;
