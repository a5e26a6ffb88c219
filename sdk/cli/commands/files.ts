// cp: files and folders, both ways; logs: what commands wrote.
import { stat } from "node:fs/promises";
import { basename } from "node:path";
import type { Command } from "commander";
import { describeOutcome, InvalidRequestError, NotFoundError } from "../../../broker/contract/index.ts";
import type { Sandbox } from "../../typescript/mod.ts";
import { type Context, withMesh } from "../context.ts";
import { duration, table } from "../output.ts";
import { copyOutput } from "../stream.ts";

/** "sb-…:/path" is inside; everything else, also "C:x", is a local path. */
function remoteOf(text: string): { id: string; path: string } | undefined {
  const [, id, path] = /^(sb-[a-z0-9-]+):(.*)$/.exec(text) ?? [];
  return id === undefined || path === undefined ? undefined : { id, path: path === "" ? "." : path };
}

export function addCp(program: Command): void {
  program
    .command("cp")
    .argument("<from>")
    .argument("<to>")
    .summary("copy files and folders, both ways")
    .description(
      "Copies a file or a folder: one side is SANDBOX:PATH. A file copied to a folder lands in it.",
    )
    .addHelpText(
      "after",
      "\nExamples:\n  sandmesh cp ./project sb-1a2b:/work\n  sandmesh cp sb-1a2b:/work/out.txt .",
    )
    .action(async (from: string, to: string, _flags: unknown, command: Command) => {
      await withMesh(command, async ({ mesh, output, signal }) => {
        const source = remoteOf(from);
        const target = remoteOf(to);
        if ((source === undefined) === (target === undefined)) {
          throw new InvalidRequestError("exactly one side must be SANDBOX:PATH", { field: "from" });
        }
        if (source !== undefined) {
          await mesh.sandbox(source.id).files.download(source.path, to, { signal });
        } else if (target !== undefined) {
          const box = mesh.sandbox(target.id);
          await box.files.upload(from, await landing(box, from, target.path), { signal });
        }
        output.result({ from, to }, "");
        return 0;
      });
    });
}

/** As cp(1): a file copied to a folder that is there lands in it. */
async function landing(box: Sandbox, from: string, path: string): Promise<string> {
  const isFile = await stat(from).then(
    (found) => found.isFile(),
    () => false,
  );
  if (!isFile) return path;
  const inFolder =
    path.endsWith("/") || ((await box.files.exists(path)) && (await box.files.stat(path)).type === "dir");
  return inFolder ? `${path.replace(/\/+$/, "")}/${basename(from)}` : path;
}

export function addLogs(program: Command): void {
  program
    .command("logs")
    .argument("<sandbox>")
    .argument("[command]", "a command's id; default the last one")
    .summary("what commands wrote")
    .description("Prints what a command wrote, also one that ended or was started with `exec --detach`.")
    .option("-l, --list", "list the commands instead")
    .option("-f, --follow", "go on until it ends")
    .action(async (id: string, command: string | undefined, flags: LogFlags, self: Command) => {
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
    each.outcome === undefined ? "running" : describeOutcome(each.outcome),
    duration(each.age_ms),
    each.command.replaceAll("\n", "⏎").slice(0, 60),
  ]);
  output.result(commands, table(["ID", "STATE", ">AGE", "COMMAND"], rows));
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
  if (flags.follow === true || !chosen.running) {
    await copyOutput(handle.attach({ signal: context.signal }), context);
    return 0;
  }
  // Running, and not to be followed: what is there, until nothing more comes at once.
  const stop = new AbortController();
  let idle = setTimeout(() => stop.abort(), IDLE_MS);
  try {
    for await (const chunk of handle.attach({ signal: stop.signal })) {
      clearTimeout(idle);
      (chunk.stream === "stdout" ? process.stdout : process.stderr).write(chunk.data);
      idle = setTimeout(() => stop.abort(), IDLE_MS);
    }
  } catch (error) {
    if (!stop.signal.aborted) throw error;
  } finally {
    clearTimeout(idle);
  }
  return 0;
}

/** Without --follow, a running command's output is what comes with no longer pause than this. */
const IDLE_MS = 200;
