// What every client command shares: the mesh, the output, and what becomes of errors.
import type { Command } from "commander";
import {
  CanceledError,
  FileError,
  InvalidRequestError,
  NotFoundError,
  SandboxLostError,
  type SandmeshError,
  toSandmeshError,
} from "../../broker/contract/index.ts";
import { connectBy } from "../typescript/connect.ts";
import { ENDING_SIGNALS } from "../typescript/exit.ts";
import { localError, systemErrno } from "../typescript/files/local-errors.ts";
import type { Mesh } from "../typescript/mod.ts";
import { resolveSettings, type Settings } from "../typescript/settings.ts";
import { defined } from "../typescript/spec.ts";
import { pause } from "../typescript/wire/pause.ts";
import { EXIT } from "./exit.ts";
import { createOutput, jsonLine, type Output, red, shown } from "./output.ts";

export interface Globals {
  json: boolean;
  quiet: boolean;
  url?: string;
  creds?: string;
  ca?: string;
}

export interface Context {
  mesh: Mesh;
  /** Which mesh that is, and as whom. */
  settings: Settings;
  output: Output;
  /** Aborted by Ctrl-C, SIGTERM and a closed terminal, so that what is under way is ended in the sandbox as well. */
  signal: AbortSignal;
}

export function globalsOf(command: Command): Globals {
  const { json = false, quiet = false, url, creds, ca } = command.optsWithGlobals<Partial<Globals>>();
  return { json, quiet, ...defined({ url, creds, ca }) };
}

/** Of a command that knows the mesh of this machine alone: the address of one would be ignored, and it may be another. */
export function hereOnly(command: Command): Command {
  return command.hook("preAction", (_, self) => {
    const { url, creds, ca } = globalsOf(self);
    for (const [name, value] of Object.entries({ url, creds, ca }))
      if (value !== undefined)
        self.error(`error: --${name} names a mesh, and this is about the mesh of this machine`);
  });
}

/** Prints an error as the program does: one line for people, `{"error": …}` on stdout with --json. */
export function printError(
  error: SandmeshError,
  json: boolean,
  said = `${error.code}: ${error.message}`,
): void {
  if (json) process.stdout.write(`${jsonLine({ error: error.toWire() })}\n`);
  process.stderr.write(`${red("sandmesh")}: ${shown(said, "\n")}\n`);
}

/** Runs one command of the program and sets its exit code: what `work` returns, or `failed` where it throws. */
export async function withMesh(
  command: Command,
  work: (context: Context) => Promise<number | undefined>,
  failed: number = EXIT.failed,
): Promise<void> {
  const globals = globalsOf(command);
  const abort = new AbortController();
  const stop = () => {
    if (!abort.signal.aborted) return abort.abort();
    // Asked again. An exit still releases what is held, and removes what is half copied; a signal's own way does not.
    process.stderr.write("sandmesh: ended at once, before all was undone in order\n");
    process.exit(EXIT.canceled);
  };
  for (const name of ENDING_SIGNALS) process.on(name, stop);
  try {
    const { url, creds, ca } = globals;
    const { signal } = abort;
    const asked = defined({ url, credentials: creds, ca });
    const settings = await resolveSettings(asked, process.env, { signal });
    const mesh = await connectBy(settings, { handleSignals: false, signal });
    try {
      process.exitCode =
        (await work({ mesh, settings, output: createOutput(globals, signal), signal })) ?? EXIT.ok;
    } finally {
      await mesh.close();
    }
  } catch (thrown) {
    const { aborted } = abort.signal;
    // Who has pressed Ctrl-C knows by whom.
    if (aborted && thrown instanceof CanceledError) printError(thrown, globals.json, "canceled");
    else process.exitCode = failedBy(thrown, globals.json, failed);
    if (aborted && process.exitCode !== EXIT.brokenPipe) process.exitCode = EXIT.canceled;
  } finally {
    if (abort.signal.aborted) await leave();
    for (const name of ENDING_SIGNALS) process.off(name, stop);
  }
}

const LAST_WORDS_MS = 500;

/** Ends this process, which what a reader of its output does not take would keep. */
async function leave(): Promise<never> {
  const said = [process.stdout, process.stderr].map(
    (stream) => new Promise<void>((resolve) => stream.write("", () => resolve())),
  );
  await Promise.race([Promise.all(said), pause(LAST_WORDS_MS)]);
  process.exit();
}

/** The reader of our output has gone, as in `sandmesh … | head`: no failure, and nobody to tell it. */
const isBrokenPipe = (thrown: unknown): boolean =>
  thrown instanceof FileError && systemErrno(thrown.cause) === "EPIPE";

/** Tells what was thrown; the exit code of that. */
export function failedBy(thrown: unknown, json: boolean, failed: number = EXIT.failed): number {
  if (isBrokenPipe(thrown)) return EXIT.brokenPipe;
  // Of a file that a person has named: no fault of ours, wherever it was not told as one of theirs.
  const path = thrown instanceof Error && "path" in thrown ? String(thrown.path) : undefined;
  const error = toSandmeshError(path === undefined ? thrown : localError(path, thrown));
  printError(error, json);
  return statusOf(error, failed);
}

/** For commands that need no mesh. */
export async function withOutput(
  command: Command,
  work: (output: Output) => Promise<void> | void,
): Promise<void> {
  const globals = globalsOf(command);
  try {
    await work(createOutput(globals));
  } catch (thrown) {
    process.exitCode = failedBy(thrown, globals.json);
  }
}

const ENDED = ["deleted", "released", "expired"];

/** Beside a command's own exit code there is no room for more than one of ours. */
export function statusOf(error: SandmeshError, failed: number = EXIT.failed): number {
  if (failed !== EXIT.failed) return failed;
  if (error instanceof InvalidRequestError) return EXIT.usage;
  // One that has ended in order, and is remembered yet, is not there either.
  const gone = error instanceof SandboxLostError && ENDED.includes(error.reason ?? "");
  return gone || error instanceof NotFoundError ? EXIT.notFound : EXIT.failed;
}
