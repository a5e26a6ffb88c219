// A command's output to this process's own streams, and its input from them.
import { isUtf8 } from "node:buffer";
import { constants, existsSync } from "node:fs";
import { access } from "node:fs/promises";
import { dirname } from "node:path";
import {
  InvalidRequestError,
  newUuidV7,
  type Outcome,
  outcomeSentence,
  shellStatus,
} from "../../broker/contract/index.ts";
import { whenAborted } from "../../broker/link/on-abort.ts";
import { localErrors } from "../typescript/files/local-errors.ts";
import { writeText } from "../typescript/files/local-write.ts";
import type { CommandEnd, CommandOptions, CommandStream, ExecResult, Sandbox } from "../typescript/mod.ts";
import { defined } from "../typescript/spec.ts";
import type { Context } from "./context.ts";
import { jsonLine, shown, write } from "./output.ts";

export async function copyOutput(output: CommandStream, context: Context): Promise<CommandEnd> {
  for await (const chunk of output) await write(chunk.stream, chunk.data, context.signal);
  const end = await output.end;
  for (const stream of ["stdout", "stderr"] as const) {
    const { dropped_bytes } = end.totals[stream];
    if (dropped_bytes > 0)
      context.output.note(`sandmesh: ${dropped_bytes} bytes of ${stream} were left out for the output limit`);
  }
  return end;
}

/** What is typed or piped into this process. */
async function* stdin(): AsyncGenerator<Uint8Array> {
  for await (const part of process.stdin) if (part instanceof Uint8Array) yield part;
}

export interface RunFlags {
  timeout?: number;
  env?: Record<string, string>;
  user?: string;
  workdir?: string;
  interactive?: boolean;
  session?: string;
  outcome?: string;
}

/** A canceled command has a second from SIGTERM to SIGKILL; a sandbox that does not tell its end within this is away. */
const CANCELED_MS = 5000;

/** Runs a command, streams it, and gives the exit code for this process. With --json: one line with all of it. */
export async function runCommand(
  context: Context,
  box: Sandbox,
  command: string | string[],
  flags: RunFlags,
): Promise<number> {
  const { timeout, env, user, workdir: cwd, session, outcome: file } = flags;
  // Told before the command runs, whose outcome would have nowhere to go.
  if (file === "") throw new InvalidRequestError("outcome: must name a file", { field: "outcome" });
  if (file !== undefined)
    await localErrors(file, () => access(existsSync(file) ? file : dirname(file), constants.W_OK));
  const input = flags.interactive === true ? stdin() : undefined;
  const { signal } = context;
  const options: CommandOptions = defined({ signal, timeout, env, user, cwd, session, stdin: input });
  if (!context.output.json) {
    const end = await copyOutput(box.stream(command, options), context);
    return report(end.outcome, flags, context);
  }
  const result = await untilCanceled(box, command, options, signal);
  // Of what was canceled the end is still told, to who takes it.
  const telling = signal.aborted ? AbortSignal.timeout(CANCELED_MS) : signal;
  await write("stdout", `${jsonLine(jsonOf(result))}\n`, telling);
  return report(result.outcome, flags, { ...context, signal: telling });
}

/** As `exec`; but where the signal aborts, the command is canceled and its result waited for, with what it wrote until then.
 * Throws CanceledError where there is none, as of one that had not been taken yet. */
async function untilCanceled(
  box: Sandbox,
  command: string | string[],
  options: CommandOptions,
  signal: AbortSignal,
): Promise<ExecResult> {
  const id = newUuidV7();
  const over = new AbortController();
  let late: ReturnType<typeof setTimeout> | undefined;
  const unhear = whenAborted(signal, () => {
    late = setTimeout(() => over.abort(), CANCELED_MS);
    box
      .command(id)
      .cancel({ signal: over.signal })
      .catch(() => over.abort());
  });
  try {
    return await box.exec(command, { ...options, id, signal: over.signal });
  } finally {
    clearTimeout(late);
    unhear();
  }
}

/** A command's result as `--json` prints it. */
export function jsonOf(result: ExecResult): object {
  return {
    sandbox: result.sandbox,
    id: result.id,
    outcome: result.outcome,
    ...outputOf(result.stdout.bytes, result.stderr.bytes),
    truncated: result.truncated,
    duration_ms: Math.round(result.durationMs * 10) / 10,
  };
}

/** Text, and beside it the bytes in base64 of a stream that is no UTF-8 (in whose text they became U+FFFD). */
export function outputOf(stdout: Uint8Array, stderr: Uint8Array): object {
  return {
    stdout: utf8.decode(stdout),
    ...(!isUtf8(stdout) && { stdout_base64: Buffer.from(stdout).toString("base64") }),
    stderr: utf8.decode(stderr),
    ...(!isUtf8(stderr) && { stderr_base64: Buffer.from(stderr).toString("base64") }),
  };
}
const utf8 = new TextDecoder("utf-8", { ignoreBOM: true });

/** Tells how it ended, and gives the exit code for this process. */
export async function report(
  outcome: Outcome,
  flags: Pick<RunFlags, "outcome">,
  context: Context,
): Promise<number> {
  const { outcome: file } = flags;
  if (file !== undefined) await writeText(file, `${jsonLine(outcome)}\n`, context.signal);
  if (outcome.type !== "exited") context.output.note(`sandmesh: ${shown(outcomeSentence(outcome))}`);
  // Here the input may still be open (a terminal); it must not keep this process.
  process.stdin.unref?.();
  return shellStatus(outcome);
}
