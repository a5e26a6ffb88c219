// cp: files and folders, both ways.
import { stat } from "node:fs/promises";
import type { Command } from "commander";
import { FileError, InvalidRequestError } from "../../../broker/contract/index.ts";
import type { Sandbox } from "../../typescript/mod.ts";
import { withMesh } from "../context.ts";

/** "ID:PATH" is inside; a local path with a colon in its first part is "./a:b". One letter is no id, but a drive. */
export function remoteOf(text: string): { id: string; path: string } | undefined {
  const [, id, path] = /^([a-z0-9][a-z0-9-]{1,62}):(.*)$/s.exec(text) ?? [];
  return id === undefined || path === undefined ? undefined : { id, path: path === "" ? "." : path };
}

const HELP = `
As cp -r: what is copied to a folder that is there lands in it, under its own name (DIR becomes FOLDER/DIR); the content
of DIR alone is DIR/. ; where nothing is there, TO is the new name, and folders that lead to it are made.
Modes, times and symlinks are kept. A local name with a colon is ./A:B. Fifos, sockets and devices are left out; those of this machine are named.

Examples:
  sandmesh cp ./project sb-1a2b:/work        /work is new: /work is the project; else /work/project is
  sandmesh cp ./project/. sb-1a2b:/work      /work has the project's files
  sandmesh cp sb-1a2b:/work/out.txt .`;

export function addCp(program: Command): void {
  program
    .command("cp")
    .argument("<from>")
    .argument("<to>")
    .summary("copy files and folders, both ways")
    .description("Copies a file or a folder: one side is SANDBOX:PATH.")
    .addHelpText("after", HELP)
    .action(async (from: string, to: string, _flags: unknown, command: Command) => {
      await withMesh(command, async ({ mesh, output, signal }) => {
        const source = remoteOf(from);
        const target = remoteOf(to);
        const skipped: string[] = [];
        if (source !== undefined && target === undefined) {
          const there = landing(source.path, to, await isLocalFolder(to));
          await mesh.sandbox(source.id).files.download(source.path, there, { signal });
        } else if (target !== undefined && source === undefined) {
          const box = mesh.sandbox(target.id);
          const there = landing(from, target.path, await isFolder(box, target.path));
          const told = (path: string) => {
            skipped.push(path);
            output.warn(`left out ${path}: neither file, folder nor symlink`);
          };
          await box.files.upload(from, there, { signal, skipped: told });
        } else {
          throw new InvalidRequestError("exactly one side must be SANDBOX:PATH", { field: "from" });
        }
        output.result({ from, to, skipped }, "");
        return 0;
      });
    });
}

/** Where cp(1) would put it: `to` itself, or below it where that is a folder. Of "DIR/.", "." and "/" the content goes. */
export function landing(from: string, to: string, isFolder: boolean): string {
  const name = /([^/]*)\/*$/.exec(from)?.[1] ?? "";
  if (!isFolder && !to.endsWith("/")) return to;
  return name === "" || name === "." || name === ".." ? to : `${to.replace(/\/+$/, "")}/${name}`;
}

async function isFolder(box: Sandbox, path: string): Promise<boolean> {
  try {
    return (await box.files.stat(path)).type === "dir";
  } catch (error) {
    // What is in the way is told by the copying.
    if (error instanceof FileError) return false;
    throw error;
  }
}

async function isLocalFolder(path: string): Promise<boolean> {
  return await stat(path).then(
    (found) => found.isDirectory(),
    () => false,
  );
}
