// Makers of root file systems whose only libc is musl: as Alpine's are, with a shell and programs, and without. Need Debian's
// package musl-tools.
import { copyFile, cp, mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { baseEntries, makeRoot } from "./images.ts";

const SCRIPT = join(import.meta.dir, "musl-busybox");
const PROGRAM = `#include <stdio.h>
int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++) printf("%s%s", i > 1 ? " " : "", argv[i]);
  putchar('\\n');
  return fflush(stdout) == 0 ? 0 : 1;
}
`;

/** The folder with bin/busybox and its applets; throws what the script says. */
function programs(...options: string[]): string {
  const { exitCode, stdout, stderr } = Bun.spawnSync(["bash", SCRIPT, ...options]);
  if (exitCode !== 0) throw new Error(stderr.toString().trim());
  return stdout.toString().trim();
}

/** Why what needs them must be skipped here; in CI, where nothing is, that is thrown. With `build` they are built first where
 * they are not there, which takes a minute or two. */
export function lackOfMusl({ build = false } = {}): string | undefined {
  try {
    programs(...(build ? [] : ["--built"]));
    return undefined;
  } catch (error) {
    if (process.env.CI === "true") throw error;
    return error instanceof Error ? error.message : String(error);
  }
}

/** The path of busybox linked to musl, whose loader this machine has; empty where it must be skipped. */
export const muslBusybox = (): string =>
  lackOfMusl() === undefined ? join(programs("--built"), "bin/busybox") : "";

/** With the program /say and the loader, no shell. */
export async function makeMuslProgramRoot(folder: string): Promise<string> {
  const source = `${folder}.c`;
  for (const name of ["lib", "etc"]) await mkdir(join(folder, name), { recursive: true });
  await writeFile(source, PROGRAM);
  const built = Bun.spawnSync(["musl-gcc", "-Os", "-s", "-o", join(folder, "say"), source]);
  if (built.exitCode !== 0) throw new Error(`musl-gcc: ${built.stderr.toString()}`);
  const machine = process.arch === "arm64" ? "aarch64" : "x86_64";
  await copyFile(`/lib/ld-musl-${machine}.so.1`, join(folder, `lib/ld-musl-${machine}.so.1`));
  return folder;
}

/** As Alpine's: busybox linked to musl as shell and programs, two users; and /say. Throws where that was not built. */
export async function makeMuslRoot(folder: string): Promise<string> {
  await makeMuslProgramRoot(folder);
  await makeRoot(folder, baseEntries());
  await cp(programs("--built"), folder, { recursive: true, verbatimSymlinks: true });
  return folder;
}
