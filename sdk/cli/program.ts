// The client half of the `sandmesh` program; deploy/sandmesh.ts adds what runs a mesh.
import { Command, type CommanderError, type HelpContext, Option } from "commander";
import { InvalidRequestError } from "../../broker/contract/index.ts";
import { addCompletion } from "./commands/completion.ts";
import { addCp } from "./commands/cp.ts";
import { addDrain } from "./commands/drain.ts";
import { addEvents } from "./commands/events.ts";
import { addLogs } from "./commands/logs.ts";
import { addContext } from "./commands/nats.ts";
import { addExec, addRun, addShell } from "./commands/run.ts";
import { addAcquire, addPs, addRelease, addRenew } from "./commands/sandboxes.ts";
import { failedBy } from "./context.ts";
import { EXIT, exitHelp, isAsTheCommand } from "./exit.ts";
import { addHelp, addNotes } from "./help.ts";
import { jsonLine, red, tellByWrites, write } from "./output.ts";
import { onlyText } from "./words.ts";

const GLOBALS = [
  ["--json", "print one line of JSON instead of text"],
  ["-q, --quiet", "print results only"],
  ["--url <url>", "NATS URL; default SANDMESH_URL, then the mesh that is up here"],
  ["--creds <file>", "credentials; default SANDMESH_CREDS, then the mesh that is up here"],
  ["--ca <file>", "PEM of the CA that signed the server's certificate; default SANDMESH_CA"],
] as const;

/** The words that name it. */
function wordsOf(command: Command): string[] {
  return command.parent === null ? [] : [...wordsOf(command.parent), command.name()];
}

/** Every command takes the global options behind its name too: were they the program's alone, it would take them out of
 * the words of `exec SANDBOX COMMAND`. */
class Program extends Command {
  override createCommand(name?: string): Command {
    const command = new Program(name);
    for (const [flags, about] of GLOBALS) command.addOption(new Option(flags, about).hideHelp());
    return command;
  }

  /** Wrong usage leads to the help of the command that was used wrongly. */
  override error(...[message, options]: Parameters<Command["error"]>): never {
    const path = wordsOf(this).filter((word) => word !== "help");
    this.showHelpAfterError(`(see ${["sandmesh", "help", ...path].join(" ")})`);
    return super.error(message, options);
  }

  /** Where no command is named commander prints help, which is no answer for programs. */
  override help(context?: HelpContext): never;
  override help(change: (text: string) => string): never;
  override help(how?: HelpContext | ((text: string) => string)): never {
    if (typeof how === "function") return super.help(how);
    if (how?.error === true && asksForJson()) this.error("error: name a command");
    return super.help(how);
  }
}

/** Thrown by commander in place of its ending the process: what is to be said is said by `runProgram` first. */
class Ending extends Error {
  readonly status: number;
  /** For stdout. */
  readonly said: string;

  constructor(status: number, said: string) {
    super("the program ends here");
    this.status = status;
    this.said = said;
  }
}

/** Does what the command line says; sets the exit code. */
export async function runProgram(program: Command): Promise<void> {
  tellByWrites();
  try {
    await program.parseAsync();
  } catch (thrown) {
    if (!(thrown instanceof Ending)) throw thrown;
    process.exitCode = thrown.status;
    try {
      if (thrown.said !== "") await write("stdout", thrown.said);
    } catch (error) {
      process.exitCode = thrown.status || failedBy(error, false);
    }
  }
}

/** A program with the client's commands. Wrong usage ends it with 2; of `run`, `exec` and `shell` with 125. */
export function createProgram(): Command {
  let said = "";
  const say = (text: string) => {
    said += text;
  };
  const exitOn =
    (usage: number) =>
    ({ exitCode, code }: CommanderError): never => {
      if (exitCode !== 0) throw new Ending(usage, said);
      // --help and --version, as the commands of these names have it.
      const name = code === "commander.version" ? "sandmesh" : "help";
      throw new Ending(EXIT.ok, asksForJson() ? `${jsonLine({ [name]: said.trimEnd() })}\n` : said);
    };
  const program = new Program("sandmesh")
    .description("Stateful sandboxes in bursts, over NATS, from unmodified images.")
    .enablePositionalOptions()
    .configureHelp({ showGlobalOptions: true, minWidthToWrap: 20 })
    .configureOutput({ writeOut: say, outputError: (text, write) => refuseUsage(text, write, say) })
    .exitOverride(exitOn(EXIT.usage));
  for (const [flags, about] of GLOBALS) program.option(flags, about);
  addNotes(program, (of) => exitHelp(wordsOf(of)), true);
  onlyText(program, "cp");
  program.commandsGroup("Commands in sandboxes:");
  addRun(program);
  addExec(program);
  addShell(program);
  addCp(program);
  addLogs(program);
  program.commandsGroup("Sandboxes:");
  addAcquire(program);
  addPs(program);
  addRenew(program);
  addRelease(program);
  addEvents(program);
  program.commandsGroup("Other:");
  addContext(program);
  addDrain(program);
  addCompletion(program);
  addHelp(program);
  for (const command of program.commands)
    if (isAsTheCommand(command.name())) command.exitOverride(exitOn(EXIT.sandmeshFailed));
  return program;
}

/** The options may not have been read yet. */
function asksForJson(): boolean {
  const words = process.argv.slice(2);
  const ours = words.includes("--") ? words.slice(0, words.indexOf("--")) : words;
  return ours.includes("--json");
}

/** Wrong usage, told as commander does, and with --json to programs as well. */
function refuseUsage(text: string, write: (text: string) => void, say: (text: string) => void): void {
  const error = new InvalidRequestError(text.trim().replace(/^error: /, ""));
  if (asksForJson()) say(`${jsonLine({ error: error.toWire() })}\n`);
  write(text.replace(/^error: /, `${red("sandmesh")}: ${error.code}: `));
}
