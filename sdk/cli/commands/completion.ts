// completion: for bash, zsh and fish. The scripts ask the program itself (`sandmesh complete -- WORDS…`), so that they
// never go stale and know the sandboxes that are there.
import type { Argument, Command, Option } from "commander";
import { connect } from "../../typescript/mod.ts";
import { withOutput } from "../context.ts";
import { operandsOf } from "../words.ts";

const SCRIPTS = {
  // Where nothing is found, names of files are each shell's own to complete: it alone knows how to quote `$(…)` in one.
  bash: `_sandmesh() {
  local IFS=$'\\n'
  COMPREPLY=($(sandmesh complete -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _sandmesh sandmesh`,
  // Of an alias zsh completes the words that it stands for, and within a completion it knows none: it becomes a function.
  zsh: `#compdef sandmesh
_sandmesh() {
  local -a found
  found=(\${(f)"$(sandmesh complete -- "\${(@)words[2,CURRENT]}" 2>/dev/null)"})
  if (( \${#found} )); then compadd -- "\${found[@]}"; else _files; fi
}
if (( \${+aliases[sandmesh]} )); then
  functions[sandmesh]="\${aliases[sandmesh]} "'"$@"'
  unalias sandmesh
fi
if (( ! \${+functions[compdef]} )); then autoload -Uz compinit && compinit; fi
if [[ $funcstack[1] = _sandmesh ]]; then _sandmesh "$@"; else compdef _sandmesh sandmesh; fi`,
  fish: `function __sandmesh_found
  set -l words (commandline -opc) (commandline -ct)
  set -g __sandmesh_found (sandmesh complete -- $words[2..-1] 2>/dev/null)
  test (count $__sandmesh_found) -gt 0
end
complete -c sandmesh -n __sandmesh_found -f -a '$__sandmesh_found'`,
} as const;
type Shell = keyof typeof SCRIPTS;
const isShell = (name: string): name is Shell => Object.hasOwn(SCRIPTS, name);

export function addCompletion(program: Command): void {
  program
    .command("completion")
    .argument("<shell>", "bash, zsh or fish")
    .summary("print a completion script")
    .description('Prints a completion script: `eval "$(sandmesh completion bash)"`.')
    .action(async (shell: string, _flags: unknown, command: Command) => {
      if (!isShell(shell)) command.error(`error: no completion for ${shell}; there is bash, zsh, fish`);
      const script = SCRIPTS[shell];
      await withOutput(command, (output) => output.result({ shell, script }, script));
    });
  program
    .command("complete", { hidden: true })
    .argument("[words...]")
    .action(async (words: string[], _flags: unknown, command: Command) => {
      const found = await candidates(program, words);
      await withOutput(command, (output) => output.result(found, found.join("\n")));
    });
}

/** What may stand at the place of the last word. */
export async function candidates(program: Command, words: readonly string[]): Promise<string[]> {
  const typed = words.at(-1) ?? "";
  const before = words.slice(0, -1);
  if (before.includes("--")) return [];
  const command = commandOf(program, before);
  if (command === undefined) return [];
  const found = typed.startsWith("-")
    ? optionsOf(program, command)
    : (valuesOf([...command.options, ...program.options], before) ??
      (await argumentsOf(program, command, before)));
  return found.filter((each) => each.startsWith(typed));
}

/** The command that is named, or the one of a command; undefined where there is none such. */
function commandOf(program: Command, before: readonly string[]): Command | undefined {
  let command = program;
  for (const name of operandsOf(before, program.options)) {
    if (command.commands.length === 0) break;
    const found = command.commands.find((each) => each.name() === name);
    if (found === undefined) return undefined;
    command = found;
  }
  return command;
}

/** Where the word is the value of an option that takes one of a few. */
function valuesOf(options: readonly Option[], before: readonly string[]): string[] | undefined {
  const at = before.findLastIndex((word) => word.startsWith("-"));
  const flag = before[at];
  const option = options.find(({ long, short }) => long === flag || short === flag);
  if (option?.argChoices === undefined) return undefined;
  return option.variadic || at === before.length - 1 ? option.argChoices : undefined;
}

/** Each once: commands take the global ones too, and hide them. */
const optionsOf = (program: Command, command: Command): string[] => [
  ...new Set([...program.options, ...command.options].map(({ long, short }) => long ?? short ?? "")),
];

async function argumentsOf(program: Command, command: Command, before: readonly string[]): Promise<string[]> {
  if (command.commands.length > 0)
    return command
      .createHelp()
      .visibleCommands(command)
      .map((each) => each.name());
  const place = operandsOf(before, [...program.options, ...command.options]).length - 1;
  const argument: Argument | undefined =
    command.registeredArguments[place] ?? command.registeredArguments.at(-1);
  if (argument?.name().startsWith("sandbox") === true) return await sandboxes();
  if (argument?.name() === "shell") return Object.keys(SCRIPTS);
  if (argument?.name() === "image") return ["host"];
  return [];
}

/** Completion must not wait for a mesh that is not there. */
async function sandboxes(): Promise<string[]> {
  try {
    await using mesh = await connect({ handleSignals: false, connectTimeout: "1s" });
    return (await mesh.list({})).map((box) => box.sandbox);
  } catch {
    return [];
  }
}
