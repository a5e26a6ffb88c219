// One command as the endpoint knows it: its output as it is held, who reads it, and how it ended.
import { InternalError, type Outcome, type OutputStream, type SandmeshError } from "../contract/index.ts";
import { Alarm } from "./alarm.ts";
import { contentOf, textOf } from "./content.ts";
import type { Context } from "./context.ts";
import type { CommandResult, CommandSink, ParsedExec, RunningCommand } from "./executor.ts";
import { OutputBuffer, slimBuffer } from "./output.ts";
import { Presence } from "./presence.ts";
import { lagOf, mayLag, neededAtEnd, neededFrom } from "./pressure.ts";
import type { StdinOffsets } from "./stdin-offsets.ts";

/** Beyond a time limit or a cancel and its grace, this long until the endpoint answers in the executor's stead. */
const BACKSTOP_MS = 5_000;

/** Someone who hears of a command. */
export interface Listener {
  started(): void;
  more(stream: OutputStream): void;
  ended(): void;
  /** Bytes that are held and not yet sent to it, of the stream that has most; undefined where it does not count. */
  lag(): number | undefined;
  /** Offset up to which it has said that it has that stream. */
  position(stream: OutputStream): number;
}

export interface Holder {
  /** More is held than is to be: of what readers have, and are to have next, as little as goes. */
  readonly tight: boolean;
  /** How many of `wanted` bytes may be held more; lets go of older commands' output for it. */
  room(wanted: number): number;
  held(bytes: number): void;
  finished(command: Command): void;
}

const NOBODY: ReadonlySet<Listener> = new Set();

function portText(port: ParsedExec["port"]): string {
  if (port === undefined) return "";
  return port.type === "accept" ? `accept ${port.connection}` : `${port.type} ${port.host}:${port.port}`;
}

export class Command implements CommandSink {
  readonly id: string;
  /** The first 200 characters, for lists. */
  readonly text: string;
  readonly session: string | undefined;
  stdout: OutputBuffer;
  stderr: OutputBuffer;
  readonly startedAt: number;
  /** The same by the clock that ids have, ms since the epoch. */
  readonly begunAt: number;
  pid: number | undefined;
  result: CommandResult | undefined;
  /** In place of a result: the executor failed, or gave none in time. */
  failure: SandmeshError | undefined;
  /** Its output was let go of, for newer commands'. */
  outputGone = false;
  /** What of stdin was taken, not counting what came in `exec`; undefined: nothing. */
  stdin: StdinOffsets | undefined;
  stdinEnd = false;
  stdinTurn: Promise<void> | undefined;
  #content: ParsedExec | string;
  #listeners: Set<Listener> | undefined;
  readonly #context: Context;
  readonly #holder: Holder;
  readonly #timeoutMs: number | undefined;
  readonly #graceMs: number;
  #running: RunningCommand | undefined;
  #paused = false;
  #cancel: { as: Outcome | undefined } | undefined;
  #backstop: Alarm | undefined;
  #presence: Presence | undefined;
  readonly #hangUpMs: number | undefined;

  /** `large`: the request is too large to be kept beside the command. */
  constructor(id: string, request: ParsedExec, large: boolean, context: Context, holder: Holder) {
    this.id = id;
    this.text = (request.shell ?? request.argv?.join(" ") ?? portText(request.port)).slice(0, 200);
    this.session = request.session;
    this.#content = large || request.stdin !== undefined ? contentOf(request) : request;
    this.#timeoutMs = request.timeout_ms;
    this.#graceMs = request.grace_ms;
    this.#hangUpMs = request.pty?.hang_up_ms;
    this.#context = context;
    this.#holder = holder;
    this.startedAt = context.now();
    this.begunAt = Date.now();
    this.stdout = new OutputBuffer(request.output_limit_bytes, request.keep);
    this.stderr = new OutputBuffer(request.output_limit_bytes, request.keep);
  }

  /** What it is, to tell a repetition from another command under the same id: the request itself, or less. */
  get content(): ParsedExec | string {
    return this.#content;
  }

  get listeners(): ReadonlySet<Listener> {
    return this.#listeners ?? NOBODY;
  }

  get over(): boolean {
    return this.result !== undefined || this.failure !== undefined;
  }

  get running(): RunningCommand | undefined {
    return this.over ? undefined : this.#running;
  }

  /** All commands of the sandbox together hold more than they are to. */
  get tight(): boolean {
    return this.#holder.tight;
  }

  background(): Promise<number[]> {
    return this.#running?.background() ?? Promise.resolve([]);
  }

  buffer(stream: OutputStream): OutputBuffer {
    return stream === "stdout" ? this.stdout : this.stderr;
  }

  /** The offset up to which a reader gets it now: the tail of a stream is known at its end only. */
  readable(stream: OutputStream): number {
    const { keep, end } = this.buffer(stream);
    return keep === "tail" && !this.over ? 0 : end;
  }

  /** The executor has begun it. It may have called the sink already. */
  begun(running: RunningCommand): void {
    this.#running = running;
    if (this.over) return;
    if (this.#hangUpMs !== undefined)
      this.#presence = new Presence(this.#context.deadlines, this.#hangUpMs, () => this.#hangUp());
    if (this.#cancel !== undefined) running.cancel(this.#cancel.as);
    if (this.#paused) running.pause(true);
    if (this.#cancel === undefined && this.#timeoutMs !== undefined) {
      this.#arm(this.#timeoutMs + this.#graceMs + BACKSTOP_MS);
    }
  }

  // What the executor tells.

  started(pid: number): void {
    const told = this.pid !== undefined;
    this.pid = pid;
    if (told) return;
    for (const listener of this.listeners) listener.started();
  }

  output(stream: OutputStream, data: Uint8Array): void {
    if (this.over || data.length === 0) return;
    const buffer = this.buffer(stream);
    const before = buffer.held;
    // A reader that is there takes it soon, and is waited for: its bytes are not dropped for want of memory.
    const read = this.listeners.size > 0 && buffer.keep !== "tail" && lagOf(this.listeners) !== undefined;
    const passed = buffer.append(data, read ? data.length : this.#holder.room(data.length));
    this.#holder.held(buffer.held - before);
    if (passed && buffer.keep === "fail") {
      this.cancel({ type: "output_limit", stream, limit_bytes: buffer.limit });
    }
    for (const listener of this.listeners) listener.more(stream);
    this.regulate();
  }

  outputEnd(stream: OutputStream): void {
    if (this.over) return;
    this.buffer(stream).eof = true;
    for (const listener of this.listeners) listener.more(stream);
  }

  ended(result: CommandResult): void {
    if (this.over) return;
    this.result = result;
    this.#end();
  }

  fail(error: SandmeshError): void {
    if (this.over) return;
    this.failure = error;
    this.#end();
  }

  #end(): void {
    if (this.#backstop !== undefined) this.#context.deadlines.clear(this.#backstop);
    this.#presence?.end();
    this.#holder.finished(this);
    for (const listener of this.listeners) listener.ended();
    // After the answer has been sent.
    queueMicrotask(() => this.#slim());
  }

  /** Thousands are remembered: what one that wrote nothing holds is a few hundred bytes. (With its request, buffers and
   * promise it was 2.6 KB.) */
  #slim(): void {
    if (typeof this.#content !== "string") this.#content = textOf(this.#content);
    this.stdout = slimBuffer(this.stdout);
    this.stderr = slimBuffer(this.stderr);
    this.stdinTurn = undefined;
    this.stdin?.slim();
    this.#backstop = undefined;
    this.#presence = undefined;
    this.#cancel = undefined;
  }

  // What is asked of it.

  /** Somebody who holds its terminal is there. */
  heard(): void {
    if (!this.over) this.#presence?.heard();
  }

  #hangUp(): void {
    this.#context.log.info(
      { sandbox: this.#context.sandbox, command: this.id },
      "a terminal is hung up: its client is gone",
    );
    this.#running?.hangUp?.();
  }

  /** Ends it; false where it has ended. */
  cancel(as?: Outcome): boolean {
    if (this.over) return false;
    if (this.#cancel !== undefined) return true;
    this.#cancel = { as };
    this.#running?.cancel(as);
    if (!this.over) this.#arm(this.#graceMs + BACKSTOP_MS);
    return true;
  }

  /** An executor that does not keep its word must not leave the caller without an answer. */
  #arm(limitMs: number): void {
    this.#backstop ??= new Alarm(() => {
      this.#context.log.error({ sandbox: this.#context.sandbox, command: this.id }, "a command did not end");
      this.#running?.cancel();
      this.fail(
        new InternalError("the command was to end, and the daemon could not end it", {
          sandbox: this.#context.sandbox,
          started: "yes",
        }),
      );
    });
    this.#context.deadlines.set(this.#backstop, limitMs);
  }

  listen(listener: Listener): void {
    this.#listeners ??= new Set();
    this.#listeners.add(listener);
  }

  unlisten(listener: Listener): void {
    if (this.#listeners?.delete(listener)) this.regulate();
    if (this.over && this.#listeners?.size === 0) this.#listeners = undefined;
  }

  /** Pauses and resumes the command by how far its readers are behind, and lets go of what they all have. */
  regulate(): void {
    if (this.over) return;
    const lag = lagOf(this.listeners);
    const pause = lag !== undefined && lag > mayLag(this.#paused, this.tight);
    if (pause !== this.#paused) {
      this.#paused = pause;
      this.#running?.pause(pause);
    }
    if (lag !== undefined) {
      this.#release("stdout");
      this.#release("stderr");
    }
  }

  #release(stream: OutputStream): void {
    const from = neededFrom(stream, this.buffer(stream), this.listeners, this.tight);
    if (from !== undefined) this.#trim(stream, from);
  }

  #trim(stream: OutputStream, from: number): void {
    const buffer = this.buffer(stream);
    const before = buffer.held;
    buffer.trim(from, this.#context.link.idle);
    this.#holder.held(buffer.held - before);
  }

  /** Of one that has ended, lets go of what all have that were sent it, and those that read it still. */
  letGo(sent: Iterable<Pick<Listener, "position">>): void {
    const readers = [...this.listeners, ...sent];
    for (const stream of ["stdout", "stderr"] as const) {
      const from = neededAtEnd(stream, this.buffer(stream), readers);
      if (from === undefined) continue;
      this.#trim(stream, from);
      if (this.#context.link.idle) this.buffer(stream).pack();
    }
  }

  /** Lets go of the output; answers how many bytes that were. */
  dropOutput(): number {
    const held = this.stdout.held + this.stderr.held;
    const { idle } = this.#context.link;
    this.stdout.clear(undefined, idle);
    this.stderr.clear(undefined, idle);
    this.outputGone = held > 0 || this.outputGone;
    return held;
  }
}
