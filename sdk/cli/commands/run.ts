// run, exec and shell: commands in sandboxes.
import { type Command, Option } from "commander";
import { defined } from "../../typescript/spec.ts";
import { type Context, withMesh } from "../context.ts";
import { EXIT } from "../exit.ts";
import { addNotes, SANDBOX_HELP } from "../help.ts";
import { forgetContexts } from "../nats-contexts.ts";
import { acquireOptions, addSpecOptions, IMAGE_HELP, namingImage, type SpecFlags, warn } from "../spec.ts";
import { type RunFlags, report, runCommand } from "../stream.ts";
import { openShell, type ShellFlags } from "../terminal.ts";
import { collectEnv, ENV_HELP, parseDuration, parseLimit } from "../units.ts";
import { passWordsOn, shellLine } from "../words.ts";

const COMMAND_HELP = "a program and its arguments, or a line for the shell";
const WORDS_HELP =
  "All words from COMMAND on are the command's own, also those that look like options. One word with white space is a line for the shell.";
const SESSION_HELP =
  "--session: one word is a line for its shell as it is; of several each is quoted where it needs it, so that it arrives as it is, and aliases and functions are found. --env and --workdir hold for that line alone, which runs in a subshell: what it changes does not last. There is no --user: the shell is the sandbox's user's.";
const JSON_HELP =
  "--json: one line with sandbox, id, outcome, stdout, stderr, truncated, duration_ms; stdout_base64 and stderr_base64 beside them where the bytes are no UTF-8; also after Ctrl-C, of what was written by then. Of each stream at most 8 MiB are kept, and `truncated` is true where there was more; without --json all of it is streamed.";

function addCommandOptions(command: Command, ...help: string[]): Command {
  return addNotes(passWordsOn(command, 1), [WORDS_HELP, ...help, JSON_HELP].join("\n\n"))
    .option("-t, --timeout <duration>", "end the command's whole tree after this; default: never", parseLimit)
    .option("-i, --interactive", "pass this process's stdin on")
    .option("--outcome <file>", "write the typed outcome there, as JSON");
}

/** One word with white space in it is a line for the shell, as a person would type it. */
const lineOf = (words: string[]): string | string[] => {
  const [only] = words;
  return words.length === 1 && only !== undefined && /\s/.test(only) ? only : words;
};

export function addRun(program: Command): void {
  addCommandOptions(
    addSpecOptions(
      program.command("run").argument("<image>", IMAGE_HELP).argument("<command...>", COMMAND_HELP),
      "60s",
    ),
  )
    .summary("acquire a sandbox, run a command in it, release it")
    .description("Acquires a sandbox, runs a command in it, streams its output, and releases it.")
    .action(async (image: string, words: string[], flags: RunFlags & SpecFlags, command: Command) => {
      await withMesh(
        command,
        async (context) => {
          const { mesh, signal } = context;
          // The sandbox has the environment, user and folder; the command takes them from it.
          const { timeout, interactive, outcome } = flags;
          const acquired = mesh.acquire({ ...acquireOptions(image, flags), signal });
          const box = await namingImage(image, acquired);
          warn(context.output, box);
          try {
            return await runCommand(context, box, lineOf(words), defined({ timeout, interactive, outcome }));
          } finally {
            await box.release();
            forgetContexts([box.id]);
          }
        },
        EXIT.sandmeshFailed,
      );
    });
}

export function addExec(program: Command): void {
  addCommandOptions(
    program.command("exec").argument("<sandbox>", SANDBOX_HELP).argument("<command...>", COMMAND_HELP),
    SESSION_HELP,
  )
    .summary("run a command in a sandbox")
    .description(
      "Runs a command in a sandbox and streams its output. Ctrl-C or an end by a signal ends the command, too; where this program is killed (SIGKILL) or the machine dies, the command goes on until its time limit (--timeout) or the sandbox's end, and `logs` lists it.",
    )
    .option("-e, --env <KEY=VALUE>", ENV_HELP, collectEnv)
    .option("-u, --user <name>", "name or uid, optionally :group")
    .option("-w, --workdir <path>", "working folder")
    .addOption(
      // Refused before a session is opened for it, which nobody would close.
      new Option("-s, --session <name>", "in this persistent shell, opened if it is not open").conflicts(
        "user",
      ),
    )
    .addOption(
      // Nobody would send stdin, or write the outcome, after it; and a session waits for its line.
      new Option("-d, --detach", "start it and print its id; see `logs`").conflicts([
        "interactive",
        "outcome",
        "session",
      ]),
    )
    .action(async (id: string, words: string[], flags: RunFlags & { detach?: boolean }, command: Command) => {
      await withMesh(
        command,
        async (context) => {
          const box = context.mesh.sandbox(id);
          if (flags.detach === true) return await startDetached(context, id, lineOf(words), flags);
          if (flags.session === undefined) return await runCommand(context, box, lineOf(words), flags);
          const line = shellLine(words);
          await box.shell({ name: flags.session });
          return await runCommand(context, box, line, flags);
        },
        EXIT.sandmeshFailed,
      );
    });
}

async function startDetached(
  context: Context,
  id: string,
  line: string | string[],
  flags: RunFlags,
): Promise<number> {
  const { timeout, env, user, workdir } = flags;
  const box = context.mesh.sandbox(id);
  const started = await box.start(line, defined({ timeout, env, user, cwd: workdir }));
  try {
    await context.output.result({ sandbox: id, id: started.id, pid: started.pid ?? null }, started.id);
  } catch (error) {
    // Nobody knows it by its id.
    await started.cancel().catch(() => undefined);
    throw error;
  }
  if (started.pid !== undefined) return EXIT.ok;
  // It has ended already: nothing was started.
  return report((await started.wait({ signal: context.signal })).outcome, {}, context);
}

export function addShell(program: Command): void {
  addNotes(passWordsOn(program.command("shell"), 1), WORDS_HELP)
    .argument("<sandbox>", SANDBOX_HELP)
    .argument("[command...]", "instead of the image's best shell")
    .summary("open a terminal in a sandbox")
    .description(
      "Opens a real terminal in a sandbox: window size, Ctrl-C, job control, full-screen programs.",
    )
    .option("-u, --user <name>", "name or uid, optionally :group")
    .option("-w, --workdir <path>", "working folder")
    .option(
      "--hang-up-after <duration>",
      "end what runs on it (SIGHUP) when this client has been gone for so long: killed or cut off; default 90s, 0: never",
      parseDuration,
    )
    .action(async (id: string, words: string[], flags: ShellFlags, command: Command) => {
      await withMesh(
        command,
        (context) => openShell(context, id, words.length > 0 ? lineOf(words) : undefined, flags),
        EXIT.sandmeshFailed,
      );
    });
}
