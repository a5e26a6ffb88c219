// Exit codes of the `sandmesh` program.

/** Whose exit code is the command's own: sandmesh's is apart from it, also for wrong usage. */
const AS_THE_COMMAND = ["run", "exec", "shell"];

export const isAsTheCommand = (name: string): boolean => AS_THE_COMMAND.includes(name);

const OF_THE_COMMAND =
  "the command's own, 0 to 255; 128+n where signal n ended it, 124 on its time limit, 130 when canceled, 126 and 127 where it could not be run; 125 where sandmesh itself failed, or was used wrongly, with one line on stderr. A command may end with these numbers, too: --outcome FILE (and --json) tells for certain (`shell` has neither).";
const OF_ALL_ELSE =
  "0 done, 1 failed (also where the output cannot be written), 2 wrong usage, 3 no such sandbox or run, or no mesh to end, 130 canceled; 141 where the reader of the output has gone.";

/** What help says of the exit codes of a command, or of the program. */
export function exitHelp(command: string, isProgram: boolean): string {
  if (isProgram) return `Exit code: ${OF_ALL_ELSE}\n\nOf run, exec and shell: ${OF_THE_COMMAND}`;
  return `Exit code: ${isAsTheCommand(command) ? OF_THE_COMMAND : OF_ALL_ELSE}`;
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
