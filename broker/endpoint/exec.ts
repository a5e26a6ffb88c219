// The verbs about commands: exec, attach, stdin, signal, cancel, resize, commands, and sh.

import type * as v from "valibot";
import {
  type AttachRequest,
  type CommandsAnswer,
  check,
  ExecRequest,
  InvalidRequestError,
  newUuidV7,
  OutputGoneError,
  SessionClosedError,
  type StdinAnswer,
  type StdinRequest,
  signalNumber,
} from "../contract/index.ts";
import { Command } from "./command.ts";
import { Commands } from "./commands.ts";
import { type Context, errorOf, type Reply } from "./context.ts";
import type { Executor, ParsedExec } from "./executor.ts";
import type { Flow } from "./flow.ts";
import { ResultWaiter, ShellWaiter, StartWaiter, shellErrorHeaders } from "./readers.ts";
import { receiptsOf } from "./receipt.ts";
import type { Retention } from "./retention.ts";
import { StdinOffsets } from "./stdin-offsets.ts";
import { type Reading, StreamReader } from "./stream-reader.ts";

/** A request of more bytes than this is kept as its digest. */
const LARGE_BYTES = 2048;

type CommandView = v.InferOutput<typeof CommandsAnswer>["commands"][number];
type Stdin = v.InferOutput<typeof StdinRequest>;
type Taken = v.InferOutput<typeof StdinAnswer>;

export class Execution {
  readonly commands: Commands;
  readonly #context: Context;
  readonly #flow: Flow;
  readonly #executor: Executor;

  constructor(context: Context, flow: Flow, executor: Executor, retention: Retention) {
    this.#context = context;
    this.#flow = flow;
    this.#executor = executor;
    this.commands = new Commands(retention);
  }

  exec(request: ParsedExec, reply: Reply, bytes: number): void {
    const { id } = request;
    const earlier = id === undefined ? undefined : this.commands.earlier(id, request, this.#context.sandbox);
    if (earlier !== undefined) {
      this.#follow(earlier, request, reply);
      return;
    }
    const command = this.#command(id ?? newUuidV7(), request, bytes);
    this.#follow(command, request, reply);
    this.#begin(command, request);
  }

  #command(id: string, request: ParsedExec, bytes: number): Command {
    const command = new Command(id, request, bytes > LARGE_BYTES, this.#context, this.commands);
    this.commands.add(command);
    return command;
  }

  #begin(command: Command, request: ParsedExec): void {
    try {
      const running = this.#executor.exec(
        request.id === command.id ? request : { ...request, id: command.id },
        command,
      );
      command.begun(running);
    } catch (thrown) {
      command.fail(errorOf(thrown, "exec"));
    }
  }

  #follow(command: Command, { credit_bytes, detach, reader }: ParsedExec, reply: Reply): void {
    if (command.outputGone && !detach) throw this.#gone(command);
    if (detach) new StartWaiter(this.#context, command, reply).begin();
    else if (credit_bytes === undefined) new ResultWaiter(this.#context, command, reply).begin();
    else this.#stream(command, reply, { credit: credit_bytes, from: { stdout: 0, stderr: 0 }, name: reader });
  }

  #gone(command: Command): OutputGoneError {
    return new OutputGoneError(`the output of ${command.id} is no longer held`, {
      sandbox: this.#context.sandbox,
      started: "yes",
    });
  }

  #stream(command: Command, reply: Reply, how: Reading): void {
    const reader = new StreamReader(this.#context, this.#flow, command, reply, how);
    // First, so that the command never is without a reader.
    reader.begin();
    if (how.name === undefined) return;
    for (const other of [...command.listeners])
      if (other instanceof StreamReader && other !== reader && other.name === how.name) other.replaced();
    for (const receipt of receiptsOf(command)) if (receipt.name === how.name) receipt.end();
  }

  attach(request: v.InferOutput<typeof AttachRequest>, reply: Reply): void {
    const { id, from_stdout, from_stderr, credit_bytes, reader } = request;
    const command = this.#need(id);
    const has = from_stdout >= command.stdout.total && from_stderr >= command.stderr.total;
    // Who has it all already still learns the outcome.
    if (command.outputGone && !has) throw this.#gone(command);
    const from = { stdout: from_stdout, stderr: from_stderr };
    this.#stream(command, reply, { credit: credit_bytes, from, name: reader });
  }

  /** What is asked for by its id; who asks is there. */
  #need(id: string): Command {
    const command = this.commands.need(id, this.#context.sandbox);
    command.heard();
    return command;
  }

  /** In the order of arrival, each part when the one before it was taken. */
  stdin(request: Stdin): Promise<Taken> {
    const command = this.#need(request.id);
    const turn = (command.stdinTurn ?? Promise.resolve()).then(() => this.#stdin(command, request));
    command.stdinTurn = turn.then(
      () => {},
      () => {},
    );
    return turn;
  }

  async #stdin(command: Command, { writer, offset, data, eof }: Stdin): Promise<Taken> {
    command.stdin ??= new StdinOffsets();
    const { stdin } = command;
    const length = data?.length ?? 0;
    const fresh = data?.subarray(stdin.repeated(writer, offset, length)) ?? new Uint8Array(0);
    if (fresh.length > 0 && command.stdinEnd) throw this.#closed(command, writer);
    // As with a pipe: what comes after the command's end is taken, and read by nobody.
    if (fresh.length > 0) await command.running?.stdin(fresh);
    stdin.add(writer, fresh.length);
    if (command.over) stdin.slim();
    if (eof && !command.stdinEnd) {
      command.stdinEnd = true;
      command.running?.closeStdin();
    }
    const received = stdin.received(writer);
    return writer === undefined ? { received } : { received, writer };
  }

  /** Clients that name no writer know it by its field. */
  #closed(command: Command, writer: string | undefined): InvalidRequestError | SessionClosedError {
    if (writer === undefined)
      return new InvalidRequestError("offset: stdin was closed before", { field: "offset" });
    return new SessionClosedError(`stdin of ${command.id} was closed before`, {
      sandbox: this.#context.sandbox,
      reason: "closed",
    });
  }

  async signal(id: string, name: string): Promise<{ running: boolean }> {
    const { running } = this.#need(id);
    const signal = signalNumber(name);
    // The schema lets none such in.
    if (signal === undefined) throw new InvalidRequestError(`signal: ${name} is none`, { field: "signal" });
    return { running: (await running?.signal(signal)) ?? false };
  }

  cancel(id: string): { running: boolean } {
    return { running: this.#need(id).cancel() };
  }

  resize(id: string, rows: number, cols: number): { running: boolean } {
    const { running } = this.#need(id);
    running?.resize(rows, cols);
    return { running: running !== undefined };
  }

  /** The newest first where one answer does not hold all. */
  async list(): Promise<{ commands: CommandView[] }> {
    const all = [...this.commands.list()].sort((a, b) => b.startedAt - a.startedAt);
    return { commands: await Promise.all(all.slice(0, MAX_LISTED).map((command) => this.#view(command))) };
  }

  async #view(command: Command): Promise<CommandView> {
    const { id, text, session, pid, result } = command;
    const view: CommandView = {
      id,
      command: text,
      running: !command.over,
      age_ms: Math.max(0, Math.round(this.#context.now() - command.startedAt)),
      readable: { stdout: command.readable("stdout"), stderr: command.readable("stderr") },
    };
    if (session !== undefined) view.session = session;
    if (pid !== undefined) view.pid = pid;
    if (result !== undefined) view.outcome = result.outcome;
    const background = command.over ? await command.background() : [];
    if (background.length > 0) view.background = background;
    return view;
  }

  /** The body is a shell line as it is. */
  sh(line: string, timeoutMs: string | undefined, reply: Reply): void {
    try {
      const timeout = timeoutMs === undefined ? {} : { timeout_ms: Number(timeoutMs) };
      const id = newUuidV7();
      const request = check(ExecRequest, { id, shell: line, merge: true, ...timeout });
      const command = this.#command(id, request, line.length);
      new ShellWaiter(this.#context, command, reply).begin();
      this.#begin(command, request);
    } catch (thrown) {
      const error = errorOf(thrown, "sh");
      this.#context.answerRaw(reply, Buffer.from(`${error.message}\n`), shellErrorHeaders(error.code));
    }
  }
}

/** One answer's worth: a view is at most some 700 bytes. */
const MAX_LISTED = 1000;
