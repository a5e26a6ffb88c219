// A command on a terminal of its own, for people and for full-screen programs.
import { NotFoundError, SandboxLostError } from "../../../broker/contract/index.ts";
import { onAbort } from "../../../broker/link/on-abort.ts";
import { given, onlySignal, onlyWellFormed } from "../arguments.ts";
import type { Abortable } from "../files/files.ts";
import { defined } from "../spec.ts";
import { type Duration, timeLimit } from "../units.ts";
import type { Box } from "../wire/box.ts";
import { type Command, type StartOptions, start } from "./command.ts";
import { cancelBehind } from "./follow.ts";
import { unlimited } from "./request.ts";
import type { CommandEnd } from "./result.ts";
import type { CommandStream } from "./stream.ts";

export interface TerminalOptions extends Omit<StartOptions, "stdin" | "stdinOpen" | "merge" | "keep"> {
  /** Default 24 by 80. */
  rows?: number;
  cols?: number;
  /** TERM inside; default xterm-256color. */
  term?: string;
  /** Default: the image's best shell, as a login shell. */
  command?: string | readonly string[];
  /** Hang it up, as a closed terminal is (SIGHUP), when this process has been gone for so long: killed, cut off, or too
   * busy to say that it is there. Default: it stays for whoever attaches next. */
  hangUpAfter?: Duration;
  /** Aborting ends what runs on it, whenever that is: the opening, and `output`, throw CanceledError. */
  signal?: AbortSignal;
}

/** How often in that time this process says that it is there. */
const BEATS = 4;

export class Terminal implements AsyncDisposable {
  readonly command: Command;
  /** The screen's bytes, all on `stdout`. */
  readonly output: CommandStream;

  /** Internal: see `Sandbox.terminal`. */
  constructor(command: Command, signal: AbortSignal | undefined) {
    this.command = command;
    this.output = command.attach(signal === undefined ? {} : { signal });
  }

  /** What is typed; another client may type, too (see StdinWriter). */
  write(data: string | Uint8Array, options: Abortable = {}): Promise<void> {
    return this.command.stdin.write(data, options);
  }

  resize(rows: number, cols: number, options: Abortable = {}): Promise<void> {
    return this.command.resize(rows, cols, options);
  }

  /** How it ended; comes when `output` is read to its end. */
  get end(): Promise<CommandEnd> {
    return this.output.end;
  }

  /** Ends what runs on it. The signal ends the waiting; the ending goes on. */
  async close(options: Abortable = {}): Promise<void> {
    onlySignal(options);
    this.output.close();
    try {
      await this.command.cancel(options);
    } catch (error) {
      if (!(error instanceof SandboxLostError || error instanceof NotFoundError)) throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

export async function openTerminal(box: Box, options: TerminalOptions): Promise<Terminal> {
  const { rows = 24, cols = 80, term, command, hangUpAfter, ...rest } = given(options);
  const hangUpMs = hangUpAfter === undefined ? undefined : timeLimit(hangUpAfter, "hangUpAfter");
  const line = command ?? [await bestShell(box, rest.signal), "-l"];
  const pty = onlyWellFormed({ rows, cols, ...defined({ term, hang_up_ms: hangUpMs }) });
  const started = await start(box, line, { ...unlimited(rest), stdinOpen: true }, pty);
  const terminal = endedBy(rest.signal, box, started);
  if (hangUpMs !== undefined) beat(box, terminal, hangUpMs / BEATS);
  return terminal;
}

/** The terminal of a command that ends when the signal aborts; it may have done so already. */
function endedBy(signal: AbortSignal | undefined, box: Box, command: Command): Terminal {
  const abort = () => cancelBehind(box, command.id);
  // In front of the output's own, which says that it is over.
  const over = onAbort(signal, abort);
  try {
    const terminal = new Terminal(command, signal);
    terminal.output.end.then(over, over);
    return terminal;
  } catch (error) {
    over();
    abort();
    throw error;
  }
}

/** Says every so often that this process is there, until the terminal is closed, or its end is known. */
function beat(box: Box, { command, output }: Terminal, everyMs: number): void {
  // Nothing, at the beginning: taken as repeated, and heard.
  const request = { id: command.id, offset: 0 };
  const timer = setInterval(() => {
    box.caller.sandbox(box.target, "stdin", request, { timeoutMs: everyMs, once: true }).catch((error) => {
      box.note(error);
      if (box.lifeline.error !== undefined || box.caller.closed !== undefined) stop();
    });
  }, everyMs);
  timer.unref();
  const stop = () => clearInterval(timer);
  output.end.then(stop, stop);
}

async function bestShell(box: Box, signal: AbortSignal | undefined): Promise<string> {
  const info = await box.call("info", {}, { signal });
  // Without a shell the exec's own outcome says so, in the sandbox's words.
  return info.shells[0] ?? "/bin/sh";
}
