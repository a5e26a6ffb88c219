// What may stand at a place of the command line: for completion.
import type { Argument, Command, Option } from "commander";
import { POOL_RESPONDER } from "../../broker/contract/index.ts";
import { connect } from "../typescript/mod.ts";
import { remoteOf } from "./commands/cp.ts";
import { operandsOf } from "./words.ts";

/** What may stand at the place of the last word, none where nothing that is known may; undefined where it is a file of this
 * machine, which the shell knows to complete. */
export async function candidates(program: Command, words: readonly string[]): Promise<string[] | undefined> {
  const typed = words.at(-1) ?? "";
  const before = words.slice(0, -1);
  if (before.includes("--")) return undefined;
  const command = commandOf(program, operandsOf(before, program.options));
  if (command === undefined) return [];
  const options = [...command.options, ...program.options];
  const operands = operandsOf(before, options).slice(depthOf(command));
  // The command's own words, in the sandbox.
  if (command.registeredArguments.slice(0, operands.length).some(isCommand)) return undefined;
  const option = optionOf(options, before);
  const found =
    option !== undefined
      ? await valuesOf(option)
      : typed.startsWith("-")
        ? namesOf(options)
        : await argumentsOf(command, operands, typed);
  return found?.filter((each) => each.startsWith(typed));
}

/** The command that is named, or the one of a command; undefined where there is none such. */
function commandOf(program: Command, names: readonly string[]): Command | undefined {
  let command = program;
  for (const name of names) {
    if (command.commands.length === 0) break;
    const found = command.commands.find((each) => each.name() === name);
    if (found === undefined) return undefined;
    command = found;
  }
  return command;
}

/** How many words name it. */
const depthOf = (command: Command): number => (command.parent === null ? 0 : depthOf(command.parent) + 1);

/** Whose value the word behind `before` is. */
function optionOf(options: readonly Option[], before: readonly string[]): Option | undefined {
  const at = before.findLastIndex((word) => word.startsWith("-"));
  const word = before[at] ?? "";
  // Of "-ds" the last.
  const flag = word.startsWith("--") ? word : `-${word.at(-1)}`;
  const option = options.find(({ long, short }) => long === flag || short === flag);
  return option?.required && (option.variadic || at === before.length - 1) ? option : undefined;
}

async function valuesOf(option: Option): Promise<string[] | undefined> {
  if (option.argChoices !== undefined) return option.argChoices;
  if (option.long === "--run") return await runs();
  if (option.long === "--sandbox") return await sandboxes();
  if (option.long === "--network") return ["none", "host"];
  return /<(file|folder|source:path)>/.test(option.flags) ? undefined : [];
}

/** Each once: commands take the global ones too, and hide them. */
const namesOf = (options: readonly Option[]): string[] => [
  ...new Set(options.map(({ long, short }) => long ?? short ?? "")),
];

/** The words that run in a sandbox. */
const isCommand = (argument: Argument): boolean => argument.variadic && argument.name() === "command";

async function argumentsOf(
  command: Command,
  operands: readonly string[],
  typed: string,
): Promise<string[] | undefined> {
  if (command.name() === "help" && command.parent !== null) return commandsOf(command.parent, operands);
  if (command.commands.length > 0) return visible(command);
  if (command.name() === "cp") return await sidesOf(operands, typed);
  const last = command.registeredArguments.at(-1);
  const argument = command.registeredArguments[operands.length] ?? (last?.variadic ? last : undefined);
  if (argument?.argChoices !== undefined) return argument.argChoices;
  switch (argument?.name()) {
    case "sandbox":
      return await sandboxes();
    case "sandbox or pool":
      return [...(await sandboxes()), POOL_RESPONDER];
    case "sandbox or run":
      return [...(await sandboxes()), ...(await runs())];
    case "image":
      return "host".startsWith(typed) ? ["host"] : undefined;
    case "folder":
      return undefined;
    default:
      return argument !== undefined && isCommand(argument) ? undefined : [];
  }
}

const visible = (command: Command): string[] =>
  command
    .createHelp()
    .visibleCommands(command)
    .map((each) => each.name());

function commandsOf(program: Command, names: readonly string[]): string[] {
  const command = commandOf(program, names);
  return command === undefined || command.commands.length === 0 ? [] : visible(command);
}

/** `SANDBOX:`, where no other side is one; where none matches it is a file of this machine. Of a path in a sandbox nothing is
 * known. A colon is a word of its own in bash. */
async function sidesOf(operands: readonly string[], typed: string): Promise<string[] | undefined> {
  const sides = [...operands, typed].join("\n").replaceAll("\n:\n", ":").replace(/\n:$/, ":").split("\n");
  if (remoteOf(sides.at(-1) ?? "") !== undefined) return [];
  if (sides.some((side) => remoteOf(side) !== undefined)) return undefined;
  const ids = (await sandboxes()).map((id) => `${id}:`).filter((id) => id.startsWith(typed));
  return ids.length > 0 ? ids : undefined;
}

const sandboxes = async (): Promise<string[]> => (await listed()).map(({ sandbox }) => sandbox);
const runs = async (): Promise<string[]> => [
  ...new Set((await listed()).flatMap(({ run }) => (run === undefined ? [] : [run]))),
];

/** Completion must not wait for a mesh that is not there. */
async function listed(): Promise<{ sandbox: string; run?: string | undefined }[]> {
  try {
    await using mesh = await connect({ handleSignals: false, connectTimeout: "1s" });
    return await mesh.list({});
  } catch {
    return [];
  }
}
