// A sandbox, as a user holds it.
import {
  type AnswerOf,
  type Grant,
  type InfoAnswer,
  type SANDBOX_VERBS,
  type SandboxLostError,
  UUID_V7_PATTERN,
} from "../../broker/contract/index.ts";
import { invalid, onlySignal } from "./arguments.ts";
import { Command, type StartOptions, start } from "./command/command.ts";
import { type ExecOptions, exec } from "./command/exec.ts";
import type { ExecResult } from "./command/result.ts";
import { openSession, type Session, type ShellOptions, stream } from "./command/session.ts";
import type { CommandStream } from "./command/stream.ts";
import { openTerminal, type Terminal, type TerminalOptions } from "./command/terminal.ts";
import { type Abortable, Files } from "./files/files.ts";
import { type ExposeOptions, expose, type Forward, type ForwardOptions, forward } from "./ports/ports.ts";
import type { Box } from "./wire/box.ts";

/** Who keeps it alive. */
export interface Owner {
  release(sandbox: Sandbox, signal?: AbortSignal): Promise<void>;
  detach(sandbox: Sandbox): void;
}

/** What every command and file operation throws beside its own errors: SandboxLostError (the infrastructure lost it),
 * LeaseLostError (it is someone else's by now), UnreachableError (nobody listens for 10 s, though it is still on the
 * pool's list), NotFoundError (the pool knows no such sandbox), DeadlineError, CanceledError (the signal), ConnectionError
 * (the mesh was closed, or its server has been away for a minute). Those of a command say in `started` whether it may have
 * run. */
export class Sandbox implements AsyncDisposable {
  readonly id: string;
  /** What the pool gave; undefined for a handle by id. */
  readonly grant: Grant | undefined;
  readonly files: Files;
  readonly #box: Box;
  readonly #owner: Owner;

  /** Internal: see `Mesh.acquire` and `Mesh.sandbox`. */
  constructor(box: Box, owner: Owner, grant?: Grant) {
    this.id = box.id;
    this.grant = grant;
    this.files = new Files(box);
    this.#box = box;
    this.#owner = owner;
  }

  /** The run that it belongs to; undefined for a handle by id. */
  get run(): string | undefined {
    return this.grant?.run;
  }

  /** Why it is not usable any more, where that is known; undefined while it is. */
  get lost(): SandboxLostError | Error | undefined {
    return this.#box.lifeline.error;
  }

  /** Calls `tell` once, when the sandbox is lost or released, also of a handle by id. Returns what takes it back. What it
   * throws keeps nobody else from learning of the loss; it is an uncaught exception of the program, as an event listener's
   * is. Throws InvalidRequestError where `tell` is no function. */
  onLost(tell: (error: Error) => void): () => void {
    if (typeof tell !== "function") throw invalid("tell", "must be a function");
    return this.#box.onLost((error) => {
      try {
        tell(error);
      } catch (thrown) {
        queueMicrotask(() => {
          throw thrown;
        });
      }
    });
  }

  /**
   * Runs a command to its end. Text is a line for the image's shell; an array is a program with its arguments, and
   * no shell. The command runs at most once, whatever becomes of connections. What it did wrong is the result's
   * `outcome`, never an error (but with `check: true`: CommandFailedError).
   */
  exec(command: string | readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    return exec(this.#box, command, options);
  }

  /** Runs a command and gives its output as it comes; leaving the loop early ends the command. */
  stream(command: string | readonly string[], options: Omit<ExecOptions, "check"> = {}): CommandStream {
    return stream(this.#box, command, options);
  }

  /** Starts a command and returns; it goes on whatever becomes of this process, as long as the sandbox lives. */
  start(command: string | readonly string[], options: StartOptions = {}): Promise<Command> {
    return start(this.#box, command, options);
  }

  /** A handle to a command by its id, also one that another client started. */
  command(id: string): Command {
    if (typeof id !== "string" || !UUID_V7_PATTERN.test(id))
      throw invalid("id", "must be a command's id, a UUIDv7");
    return new Command(this.#box, id);
  }

  /** The commands that run, and those whose result is still held. */
  async commands(options: Abortable = {}): Promise<AnswerOf<(typeof SANDBOX_VERBS)["commands"]>["commands"]> {
    return (await this.#box.call("commands", {}, onlySignal(options))).commands;
  }

  /** Opens a persistent shell. Aborting closes it again, unless it has a `name`: it may have been open before. */
  shell(options: ShellOptions = {}): Promise<Session> {
    return openSession(this.#box, options);
  }

  /** Opens a terminal with a shell, or a command, on it. */
  terminal(options: TerminalOptions = {}): Promise<Terminal> {
    return openTerminal(this.#box, options);
  }

  /** Reaches a server in the sandbox: each connection to the port of this machine that it answers is one to `port`
   * there. `await using` or `close` ends it. */
  forward(port: number, options: ForwardOptions = {}): Promise<Forward> {
    return forward(this.#box, port, options);
  }

  /** Lets the sandbox reach a server of this machine: each connection in the sandbox to the port that it answers is one
   * to `localPort` here. `await using` or `close` ends it. */
  expose(localPort: number, options: ExposeOptions = {}): Promise<Forward> {
    return expose(this.#box, localPort, options);
  }

  /** Resolves when the daemon has answered; to the time that took, ms. */
  async ping(options: Abortable = {}): Promise<number> {
    const begun = performance.now();
    await this.#box.call("ping", {}, onlySignal(options));
    return performance.now() - begun;
  }

  info(options: Abortable = {}): Promise<InfoAnswer> {
    return this.#box.call("info", {}, onlySignal(options));
  }

  /** Ends the sandbox; resolves when it is gone, and verified so. Releasing what is gone succeeds. The signal ends the
   * waiting; the release goes on. */
  async release(options: Abortable = {}): Promise<void> {
    const { signal } = onlySignal(options);
    await this.#owner.release(this, signal);
  }

  /** The same as `release`. */
  close(options: Abortable = {}): Promise<void> {
    return this.release(options);
  }

  /** Lets go of it without ending it: this process neither renews nor releases it any more, and its lease lapses
   * unless someone else renews the run. */
  detach(): void {
    this.#owner.detach(this);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }
}
