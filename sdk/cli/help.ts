// help: the program's, a command's, and that there is no such command.
import type { Command } from "commander";

/** In place of commander's own, which for an unknown name prints all of the program's help and not what is wrong. */
export function addHelp(program: Command): void {
  program
    .helpCommand(false)
    .command("help")
    .argument("[command...]")
    .summary("help for a command")
    .description("Prints help for a command, or all of them.")
    .action((names: string[], _flags: unknown, self: Command) => {
      let command = program;
      for (const name of names) {
        const found = command.commands.find((each) => each.name() === name);
        if (found === undefined) self.error(`error: there is no command ${names.join(" ")}`);
        command = found;
      }
      command.help();
    });
}
