// A command that was started and not waited for; also one that another client started.
import { given, invalid, nothingElse, onlySignal } from "../arguments.ts";
import type { Abortable } from "../files/files.ts";
import type { Box } from "../wire/box.ts";
import { CALL_TIMEOUT_MS } from "../wire/caller.ts";
import type { Source } from "../wire/parts.ts";
import { unlessAborted } from "../wire/pause.ts";
import { collect } from "./exec.ts";
import { cancelBehind, Follower } from "./follow.ts";
import { type CommandOptions, prepare } from "./request.ts";
import type { ExecResult } from "./result.ts";
import { StdinWriter, takesNoMore } from "./stdin.ts";
import { CommandStream } from "./stream.ts";

/** That it runs is told at once, by a sandbox that is there. */
const STARTING = { limitMs: CALL_TIMEOUT_MS, graceMs: Number.POSITIVE_INFINITY };

export interface StartOptions extends CommandOptions {
  /** More stdin follows by `command.stdin`, behind all of `stdin`. */
  stdinOpen?: boolean;
  /** Aborting ends the command's whole tree until `start` has returned, which throws CanceledError then, and until all of
   * `stdin` is sent. */
  signal?: AbortSignal;
}

export interface AttachOptions {
  /** Offsets to read on from; default 0: from the command's start, as far as it is still held. */
  from?: { stdout?: number; stderr?: number };
  signal?: AbortSignal;
}

export class Command {
  readonly id: string;
  /** Of its first process, as the sandbox sees it; undefined for a handle by id, or where none started. */
  readonly pid: number | undefined;
  /** For commands started with `stdinOpen`; any client may write, by a handle of its own. */
  readonly stdin: StdinWriter;
  readonly #box: Box;

  /** Internal: see `Sandbox.start` and `Sandbox.command`. */
  constructor(box: Box, id: string, started?: { pid: number | undefined }) {
    this.#box = box;
    this.id = id;
    this.pid = started?.pid;
    this.stdin = new StdinWriter(box, id, started === undefined ? undefined : 0);
  }

  /** Its output, from the start or from an offset, then as it comes. Leaving the loop leaves the command alone.
   * Throws UnknownCommandError, OutputGoneError. */
  attach(options: AttachOptions = {}): CommandStream {
    const { from, signal, ...rest } = given(options);
    nothingElse(rest);
    for (const [stream, offset] of Object.entries(given(from ?? {}, "from")))
      if (offset !== undefined && !(Number.isSafeInteger(offset) && offset >= 0))
        throw invalid(`from.${stream}`, "must be an offset, from 0 on");
    const follower = new Follower(this.#box, { id: this.id, signal, ...(from && { from }) });
    return new CommandStream(this.#box, this.id, follower, { onLeave: "leave" });
  }

  /** Its end, with all output still held. Aborting ends the waiting, not the command. */
  wait(options: Abortable = {}): Promise<ExecResult> {
    return collect(this.#box, new Follower(this.#box, { id: this.id, keep: "tail", ...onlySignal(options) }));
  }

  /** Sends a signal, such as "SIGINT", to its process group; resolves to whether it still ran. Throws InvalidRequestError while
   * it waits for its turn in a session. */
  async signal(name: string, options: Abortable = {}): Promise<boolean> {
    return (await this.#box.call("signal", { id: this.id, signal: name }, onlySignal(options))).running;
  }

  /** Ends it with its whole process tree; resolves to whether it still ran. Its outcome is `canceled`. The signal ends the
   * waiting; the ending goes on. */
  async cancel(options: Abortable = {}): Promise<boolean> {
    const { signal } = onlySignal(options);
    return (await unlessAborted(this.#box.call("cancel", { id: this.id }), signal)).running;
  }

  /** Sets the window of its terminal. */
  async resize(rows: number, cols: number, options: Abortable = {}): Promise<void> {
    await this.#box.call("resize", { id: this.id, rows, cols }, onlySignal(options));
  }
}

export interface Pty {
  rows: number;
  cols: number;
  term?: string;
  hang_up_ms?: number;
}

/** Starts a command and returns when it runs (or could not be started: `wait` then tells why). */
export async function start(
  box: Box,
  line: string | readonly string[],
  options: StartOptions,
  pty?: Pty,
): Promise<Command> {
  const { stdin, request } = prepare(line, options, given(options).stdinOpen === true);
  const { credit_bytes: _, ...detached } = { ...request, detach: true, ...(pty && { pty }) };
  const follower = new Follower(box, {
    id: request.id,
    exec: detached,
    patience: STARTING,
    keep: "tail",
    signal: options.signal,
  });
  let pid: number | undefined;
  try {
    for await (const frame of follower.frames()) if (frame.type !== "chunk") pid = frame.pid;
  } catch (error) {
    if (options.signal?.aborted === true) cancelBehind(box, request.id);
    throw error;
  }
  const command = new Command(box, request.id, { pid });
  if (stdin !== undefined) void feedStarted(box, command, stdin, options);
  return command;
}

/** What the command does not take is lost, as with a pipe. A source that fails ends the command, for which half of its
 * input would be the whole; so does the signal, and what else keeps its input from it. */
async function feedStarted(
  box: Box,
  command: Command,
  source: Source,
  { stdinOpen = false, signal = new AbortController().signal }: StartOptions,
): Promise<void> {
  try {
    await command.stdin.feed(source, stdinOpen, signal);
  } catch (error) {
    if (signal.aborted || !takesNoMore(error)) cancelBehind(box, command.id);
  }
}
