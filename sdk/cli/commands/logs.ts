// logs: what commands wrote.
import { type Command, Option } from "commander";
import { describeOutcome, NotFoundError } from "../../../broker/contract/index.ts";
import type { Command as CommandHandle } from "../../typescript/mod.ts";
import { type Context, withMesh } from "../context.ts";
import { SANDBOX_HELP } from "../help.ts";
import { duration, table, write } from "../output.ts";
import { copyOutput, jsonOf, outputOf } from "../stream.ts";

export function addLogs(program: Command): void {
  program
    .command("logs")
    .argument("<sandbox>", SANDBOX_HELP)
    .argument("[command]", "a command's id; default the last one")
    .summary("what commands wrote")
    .description(
      "Prints what a command has written so far, also one that ended or was started with `exec --detach`.",
    )
    .addOption(new Option("-l, --list", "list the commands instead").conflicts("follow"))
    .option("-f, --follow", "go on until it ends")
    .action(async (id: string, command: string | undefined, flags: LogFlags, self: Command) => {
      if (flags.list === true && command !== undefined)
        self.error("error: --list lists all commands: name none with it");
      await withMesh(self, (context) =>
        flags.list ? listCommands(context, id) : printLog(context, id, command, flags),
      );
    });
}

interface LogFlags {
  list?: boolean;
  follow?: boolean;
}

async function listCommands({ mesh, output }: Context, id: string): Promise<number> {
  const commands = await mesh.sandbox(id).commands();
  const rows = commands.map((each) => [
    each.id,
    // Where neither is so, an error was the answer, such as one that refused it.
    each.outcome !== undefined ? describeOutcome(each.outcome) : each.running ? "running" : "refused or lost",
    duration(each.age_ms),
    each.command.replaceAll("\n", "⏎"),
  ]);
  await output.result(commands, table(["=ID", "STATE", ">AGE", "COMMAND"], rows));
  return 0;
}

async function printLog(
  context: Context,
  id: string,
  command: string | undefined,
  flags: LogFlags,
): Promise<number> {
  const box = context.mesh.sandbox(id);
  const known = await box.commands();
  // Ids are ordered in time.
  const newest = known
    .map((each) => each.id)
    .sort()
    .at(-1);
  const chosen = known.find((each) => each.id === (command ?? newest));
  if (chosen === undefined)
    throw new NotFoundError("no such command, or its output is no longer held", { sandbox: id });
  const handle = box.command(chosen.id);
  const { output, signal } = context;
  if (flags.follow !== true && chosen.running) {
    await printSoFar(context, handle, id, chosen.readable ?? { stdout: 0, stderr: 0 });
  } else if (output.json) await output.result(jsonOf(await handle.wait({ signal })), "");
  else await copyOutput(handle.attach({ signal }), context);
  return 0;
}

/** Of a running command what it had written when it was asked for. */
async function printSoFar(
  context: Context,
  handle: CommandHandle,
  sandbox: string,
  readable: { stdout: number; stderr: number },
): Promise<void> {
  const parts = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] };
  const missing = { ...readable };
  const output = handle.attach({ signal: context.signal });
  if (missing.stdout + missing.stderr > 0) {
    for await (const { stream, data, offset } of output) {
      const part = data.subarray(0, Math.max(0, readable[stream] - offset));
      if (context.output.json) parts[stream].push(part);
      else await write(stream, part, context.signal);
      missing[stream] = Math.max(0, readable[stream] - offset - data.length);
      if (missing.stdout + missing.stderr === 0) break;
    }
  }
  if (!context.output.json) return;
  const [stdout, stderr] = [Buffer.concat(parts.stdout), Buffer.concat(parts.stderr)];
  await context.output.result({ sandbox, id: handle.id, running: true, ...outputOf(stdout, stderr) }, "");
}
