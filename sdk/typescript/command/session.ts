// A persistent shell: folder, variables, functions and background jobs live on from one line to the next.
import { CanceledError, newUuidV7 } from "../../../broker/contract/index.ts";
import { given, nothingElse, onlySignal } from "../arguments.ts";
import type { Abortable } from "../files/files.ts";
import { defined } from "../spec.ts";
import type { Box } from "../wire/box.ts";
import { unlessAborted } from "../wire/pause.ts";
import { type ExecOptions, exec, feed, followed } from "./exec.ts";
import { Follower } from "./follow.ts";
import { prepare, unlimited } from "./request.ts";
import type { ExecResult } from "./result.ts";
import { CommandStream } from "./stream.ts";

export interface ShellOptions {
  /** `bash`, `dash`, `sh`, `zsh` or a path; default the image's best. */
  shell?: string;
  cwd?: string;
  env?: Record<string, string | null>;
  /** Its name, `[a-z0-9-]`; default a new one. Opening an open one with the same settings answers it. */
  name?: string;
  signal?: AbortSignal;
}

export class Session implements AsyncDisposable {
  readonly name: string;
  /** Path of the shell that runs. */
  readonly shell: string;
  readonly pid: number;
  readonly #box: Box;

  /** Internal: see `Sandbox.shell`. */
  constructor(box: Box, view: { session: string; shell: string; pid: number }) {
    this.#box = box;
    this.name = view.session;
    this.shell = view.shell;
    this.pid = view.pid;
  }

  /** Runs one line, or several, in the shell. Throws SessionClosedError where the shell has exited,
   * IncompleteCommandError for what does not end, such as an open quote (nothing of it runs; the session lives on), and
   * what `Sandbox.exec` throws. */
  exec(line: string, options: Omit<ExecOptions, "session"> = {}): Promise<ExecResult> {
    return exec(this.#box, line, { ...given(options), session: this.name });
  }

  /** As `exec`, with the output as it comes. */
  stream(line: string, options: Omit<ExecOptions, "session" | "check"> = {}): CommandStream {
    return stream(this.#box, line, { ...given(options), session: this.name });
  }

  /** Ends the shell and what it runs. Closing a closed one succeeds. The signal ends the waiting; the closing goes on. */
  async close(options: Abortable = {}): Promise<void> {
    const { signal } = onlySignal(options);
    if (this.#box.lifeline.error !== undefined) return;
    await unlessAborted(this.#box.call("session_close", { session: this.name }), signal);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

export async function openSession(box: Box, options: ShellOptions): Promise<Session> {
  const { shell, cwd, env, signal, name, ...rest } = given(options);
  nothingElse(rest);
  const session = name ?? `s-${newUuidV7()}`;
  const request = defined({ session, shell, cwd, env });
  try {
    return new Session(box, await box.call("session_open", request, { signal }));
  } catch (error) {
    // One that was named may have been open before.
    if (error instanceof CanceledError && name === undefined)
      box.call("session_close", { session }).catch(() => undefined);
    throw error;
  }
}

/** A command's output as it comes; see Sandbox.stream. */
export function stream(
  box: Box,
  command: string | readonly string[],
  options: Omit<ExecOptions, "check">,
): CommandStream {
  const prepared = prepare(command, unlimited(options));
  const follower = new Follower(box, followed(prepared, options));
  let input: ReturnType<typeof feed>;
  return new CommandStream(box, prepared.request.id, follower, {
    onLeave: "cancel",
    onStart: () => {
      input = feed(box, prepared, follower);
    },
    onDone: () => input?.end(),
  });
}
