// cp: files and folders, both ways.
import { stat } from "node:fs/promises";
import type { Command } from "commander";
import { FileError, InvalidRequestError } from "../../../broker/contract/index.ts";
import type { CopyOptions, Sandbox } from "../../typescript/mod.ts";
import { type Context, withMesh } from "../context.ts";
import { addNotes } from "../help.ts";
import type { Output } from "../output.ts";
import { bytesOfArgument, isText } from "../words.ts";

/** "ID:PATH" is inside; a local path with a colon in its first part is "./a:b". One letter is no id, but a drive. */
export function remoteOf(text: string): { id: string; path: string } | undefined {
  const [, id, path] = /^([a-z0-9][a-z0-9-]{1,62}):(.*)$/s.exec(text) ?? [];
  return id === undefined || path === undefined ? undefined : { id, path };
}

const HELP = `As cp -a, without owners: what is copied to a folder that is there lands in it, under its own name (DIR becomes FOLDER/DIR); the content of DIR alone is DIR/. ; where nothing is there, TO is the new name, and folders that lead to it are made. Modes, times (to the microsecond) and symlinks are kept, also where FROM itself is a symlink: with --follow-link, and of LINK/. , it is what that leads to. A folder that was there keeps its own mode and time. Holes of files stay holes, and are not sent (of a FILE, where nothing stands at TO). A fifo as FROM, and what a descriptor leads to (/dev/stdin, <(COMMAND)), is read to its end, into a file; a fifo's writer is waited for. In a folder fifos, sockets and devices are left out, and named. A new folder on this machine appears whole or not at all; elsewhere what a copy that ends early has copied stays, and it says so. A local name with a colon is ./A:B; SANDBOX:. is a sandbox's working folder.

Examples:
  sandmesh cp ./project sb-1a2b:/work     /work, if new; else /work/project
  sandmesh cp ./project/. sb-1a2b:/work   the project's files, in /work
  sandmesh cp sb-1a2b:/work/out.txt .
  echo hello | sandmesh cp /dev/stdin sb-1a2b:/work/greeting`;

export function addCp(program: Command): void {
  addNotes(program.command("cp"), HELP)
    .argument("<from>", "a path of this machine, or SANDBOX:PATH")
    .argument("<to>", "the other of both")
    .summary("copy files and folders, both ways")
    .description("Copies a file or a folder: one side is SANDBOX:PATH.")
    .option("-L, --follow-link", "where FROM itself is a symlink, copy what it leads to")
    .option(
      "--root <path>",
      "the sandbox's path is below that folder of it; no symlink is followed out of it",
    )
    .action(async (from: string, to: string, flags: Flags, command: Command) => {
      await withMesh(command, async (context) => {
        const { output, signal } = context;
        const { skipped, told } = teller(output);
        const partial = () => output.warn(`the copy is partial: what was copied by then stays in ${to}`);
        const options = { signal, skipped, partial, follow: flags.followLink === true };
        await copy(context, from, to, options, flags.root);
        await output.result({ from, to, ...told() }, "");
        return 0;
      });
    });
}

interface Flags {
  followLink?: boolean;
  root?: string;
}

async function copy(
  { mesh }: Context,
  from: string,
  to: string,
  options: CopyOptions,
  root: string | undefined,
): Promise<void> {
  const filesOf = (id: string): Sandbox["files"] => {
    const { files } = mesh.sandbox(id);
    return root === undefined ? files : files.beneath(root);
  };
  const source = remoteOf(from);
  const target = remoteOf(to);
  for (const [field, text, side] of [["from", from, source] as const, ["to", to, target] as const]) {
    if (side?.path !== "") continue;
    throw new InvalidRequestError(`${text} names no path: ${text}. is the working folder`, { field });
  }
  if (source !== undefined && target === undefined) {
    if (!isText(from)) {
      const message = "what is named in the sandbox must be UTF-8; copy the folder that it is in";
      throw new InvalidRequestError(message, { field: "from" });
    }
    const place = bytesOfArgument(to);
    const there = placed(Buffer.from(source.path), place, await isLocalFolder(place));
    await filesOf(source.id).download(source.path, there, options);
  } else if (target !== undefined && source === undefined) {
    const files = filesOf(target.id);
    const place = bytesOfArgument(to).subarray(target.id.length + 1);
    const local = bytesOfArgument(from);
    await files.upload(local, placed(local, place, await isFolder(files, target.path)), options);
  } else {
    throw new InvalidRequestError("exactly one side must be SANDBOX:PATH", { field: "from" });
  }
}

/** Names on stderr; with --json all that are known. */
const MOST_TOLD = 20;

/** Tells what was left out, as it comes, and in the end how much more than was named. */
function teller(output: Output) {
  const skipped: string[] = [];
  let all = 0;
  return {
    skipped(path: string, count: number) {
      all = count;
      if (skipped.push(path) <= MOST_TOLD) output.warn(`left out ${path}: neither file, folder nor symlink`);
    },
    told() {
      const more = all - Math.min(skipped.length, MOST_TOLD);
      if (more > 0) output.warn(`left out ${more} more`);
      return { skipped, skipped_count: all };
    },
  };
}

/** `landing` for names that need not be UTF-8. */
const placed = (from: Buffer, to: Buffer, isFolder: boolean): Buffer =>
  Buffer.from(landing(from.toString("latin1"), to.toString("latin1"), isFolder), "latin1");

/** Where cp(1) would put it: `to` itself, or below it where that is a folder. Of "DIR/.", "." and "/" the content goes. */
export function landing(from: string, to: string, isFolder: boolean): string {
  const name = /([^/]*)\/*$/.exec(from)?.[1] ?? "";
  if (!isFolder && !to.endsWith("/")) return to;
  return name === "" || name === "." || name === ".." ? to : `${to.replace(/\/+$/, "")}/${name}`;
}

async function isFolder(files: Sandbox["files"], path: string): Promise<boolean> {
  try {
    return (await files.stat(path)).type === "dir";
  } catch (error) {
    // What is in the way is told by the copying.
    if (error instanceof FileError) return false;
    throw error;
  }
}

async function isLocalFolder(path: Buffer): Promise<boolean> {
  return await stat(path).then(
    (found) => found.isDirectory(),
    () => false,
  );
}
