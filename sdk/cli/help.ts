// help: the program's, a command's, and that there is no such command.
import type { Command } from "commander";
import { withOutput } from "./context.ts";

/** Of an argument that is a sandbox. */
export const SANDBOX_HELP = "its id; `ps` lists them";

/** In place of commander's own, which for an unknown name prints all of the program's help and not what is wrong. */
export function addHelp(program: Command): void {
  program
    .helpCommand(false)
    .command("help")
    .argument("[name...]", "of a command, and of one of its commands; default: all")
    .summary("help for a command")
    .description("Prints help for a command, or all of them.")
    .action(async (names: string[], _flags: unknown, self: Command) => {
      let command = program;
      for (const name of names) {
        const found = command.commands.find((each) => each.name() === name);
        if (found === undefined) {
          // A group's own words for it, with those that are like it. (One that does something would do it.)
          if (command.commands.length > 0) await command.parseAsync([name], { from: "user" });
          self.error(`error: there is no command ${names.join(" ")}`);
        }
        command = found;
      }
      await withOutput(self, (output) => {
        const help = helpOf(command);
        return output.result({ help }, help);
      });
    });
}

/** As commander prints it, with what is added behind. */
function helpOf(command: Command): string {
  let text = "";
  command.configureOutput({ writeOut: (part) => (text += part) }).outputHelp();
  return text;
}

/** Adds paragraphs behind a command's help, as wide as the rest of it. Lines that are indented stay as they are. */
export function addNotes(command: Command, text: string | ((of: Command) => string), all = false): Command {
  return command.addHelpText(all ? "afterAll" : "after", ({ command: of }) => {
    const helper = of.createHelp();
    helper.prepareContext({ helpWidth: of.configureOutput().getOutHelpWidth?.() ?? WIDTH });
    const said = typeof text === "string" ? text : text(of);
    const fill = (part: string) =>
      part.startsWith(" ") ? part : helper.boxWrap(part, helper.helpWidth ?? WIDTH);
    return `\n${said.split("\n").map(fill).join("\n")}`;
  });
}

const WIDTH = 80;
