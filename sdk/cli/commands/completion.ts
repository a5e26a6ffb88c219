// completion: for bash, zsh and fish. The scripts ask the program itself (`sandmesh complete -- WORDS…`), so that they
// never go stale and know the sandboxes that are there.
import { Argument, type Command } from "commander";
import { candidates } from "../candidates.ts";
import { withOutput } from "../context.ts";
import { EXIT } from "../exit.ts";

const SCRIPTS = {
  // Names of files (exit code 1) are each shell's own to complete: it alone knows how to quote `$(…)` in one.
  bash: `_sandmesh() {
  local IFS=$'\\n'
  COMPREPLY=($(sandmesh complete -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)) && compopt +o default 2>/dev/null
  if [[ $COMPREPLY = *: ]]; then compopt -o nospace 2>/dev/null; fi
}
complete -o default -F _sandmesh sandmesh`,
  // Of an alias zsh completes the words that it stands for, and within a completion it knows none: it becomes a function.
  zsh: `#compdef sandmesh
_sandmesh() {
  local -a found
  found=(\${(f)"$(sandmesh complete -- "\${(@)words[2,CURRENT]}" 2>/dev/null)"})
  if (( $? )); then _files; elif [[ $found[1] = *: ]]; then compadd -S '' -- "\${found[@]}"; else compadd -- "\${found[@]}"; fi
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
end
complete -c sandmesh -n __sandmesh_found -f -a '$__sandmesh_found'`,
} as const;
type Shell = keyof typeof SCRIPTS;

export function addCompletion(program: Command): void {
  program
    .command("completion")
    .addArgument(new Argument("<shell>", "whose script").choices(Object.keys(SCRIPTS)))
    .summary("print a completion script")
    .description('Prints a completion script: `eval "$(sandmesh completion bash)"`.')
    .action(async (shell: Shell, _flags: unknown, command: Command) => {
      const script = SCRIPTS[shell];
      await withOutput(command, (output) => output.result({ shell, script }, script));
    });
  program
    .command("complete", { hidden: true })
    .argument("[words...]")
    .action(async (words: string[], _flags: unknown, command: Command) => {
      const found = await candidates(program, words);
      await withOutput(command, (output) => output.result(found ?? [], found?.join("\n") ?? ""));
      if (found === undefined) process.exitCode = EXIT.failed;
    });
}
