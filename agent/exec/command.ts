// One command: from the engine's events to the sink's, with its time limit and its ending.
import type { Outcome, OutputStream } from "../../broker/contract/index.ts";
import type { CommandSink, ParsedExec, RunningCommand } from "../../broker/endpoint/executor.ts";
import { after } from "../../broker/link/after.ts";
import type { Engine } from "../native/engine.ts";
import { type EngineListener, type Exit, STATUS_TAKEN, type StartFailure } from "../native/listener.ts";
import type { OomKills } from "../process/oom.ts";
import { type Attempt, failureOutcome, statusTaken } from "./failure.ts";
import type { Membership } from "./groups.ts";
import { type EndedTree, type Ending, endedOutcome, naturalOutcome } from "./outcome.ts";
import { StdinQueue } from "./stdin.ts";
import { endTree, findTree } from "./tree.ts";

export interface CommandContext {
  engine: Engine;
  oom: Pick<OomKills, "look" | "claim">;
  /** Called once, after `sink.ended`. */
  done(command: Command): void;
}

export class Command implements RunningCommand, EngineListener {
  readonly id: string;
  readonly #context: CommandContext;
  readonly #graceMs: number;
  readonly #waitAll: boolean;
  #attempt: Attempt | undefined;
  readonly #sink: CommandSink;
  readonly #startedAt: number;
  /** Its cgroup, where it has one: to be told as soon as it has begun. */
  group: Membership | undefined;
  /** Where a spare shell has become it: its request once more, for a process of its own. */
  again: (() => Buffer) | undefined;
  #handle = -1;
  #stdin: StdinQueue | undefined;
  #pid = 0;
  #clearTimer: (() => void) | undefined;
  #early: number[] | undefined;
  #signaled = false;
  #exit: Exit | undefined;
  #exitAt = 0;
  #closed: { held: boolean } | undefined;
  #ending: Ending | undefined;
  #tree: EndedTree | undefined;
  #waiting = false;
  #over = false;

  /** Of the request it keeps what is needed later: an ended command is remembered for long, and shall be small. */
  constructor(id: string, request: ParsedExec, attempt: Attempt, sink: CommandSink, context: CommandContext) {
    this.id = id;
    this.#graceMs = request.grace_ms;
    this.#waitAll = request.wait === "all";
    this.#attempt = attempt;
    this.#sink = sink;
    this.#context = context;
    // In this order: what was killed for memory before is not this command's.
    context.oom.look();
    this.#startedAt = performance.now();
  }

  /** Begins; answers a negative errno where the engine could not take it. */
  start(packed: Buffer, { stdin, stdin_open, pty, timeout_ms }: ParsedExec): number {
    const { engine } = this.#context;
    this.#handle = engine.start(packed, this);
    if (this.#handle < 0) return this.#handle;
    const terminal = pty !== undefined;
    const given = stdin !== undefined && stdin.length > 0;
    if (given || stdin_open || terminal) this.#stdin = new StdinQueue(engine, this.#handle, terminal);
    if (given) void this.#stdin?.write(stdin);
    if (!stdin_open && !terminal) this.#stdin?.close();
    if (timeout_ms !== undefined)
      this.#clearTimer = after(timeout_ms, () => this.#end({ why: "timeout", afterMs: timeout_ms }));
    return 0;
  }

  // ---- what the engine tells ----
  started(pid: number): void {
    this.#pid = pid;
    if (this.again === undefined) this.#attempt = undefined;
    this.#sink.started(pid);
    for (const signal of this.#early ?? []) this.#context.engine.signal(this.#handle, signal);
    this.#early = undefined;
    if (this.#ending !== undefined) void this.#endTree();
  }
  failed(failure: StartFailure): void {
    if (this.#attempt !== undefined) this.#finish(failureOutcome(failure, this.#attempt));
  }
  output(stream: OutputStream, data: Uint8Array): void {
    this.#sink.output(stream, data);
  }
  stdinTaken(): void {
    this.#stdin?.taken();
  }
  exited(exit: Exit): void {
    this.#context.oom.look();
    if (exit.untaken && this.#startAgain(exit)) return;
    this.again = this.#attempt = undefined;
    this.#exit = exit;
    this.#exitAt = performance.now();
    if (this.#ending === undefined && !this.#waitAll) this.#stopTimer();
  }
  closed(held: boolean): void {
    this.#closed = { held };
    this.#advance();
  }

  /** The spare shell that was to be it was ended by someone before it took the line, as one that waits for one may be at any
   * time (it is what the kernel ends first for memory): no word of that. False where it is this command's end after all. */
  #startAgain({ status }: Exit): boolean {
    const { engine, oom } = this.#context;
    const { again } = this;
    this.again = undefined;
    if (again === undefined || this.#ending !== undefined || this.#signaled) return false;
    // Of a kill for memory the spare was the one.
    naturalOutcome(status, () => oom.claim(this.#startedAt));
    const handle = engine.start(again(), this);
    if (handle < 0) return false;
    engine.forget(this.#handle);
    this.#handle = handle;
    this.#pid = 0;
    return true;
  }

  // ---- what the endpoint asks ----
  pause(paused: boolean): void {
    if (!this.#over && this.#tree === undefined) this.#context.engine.pause(this.#handle, paused);
  }
  async stdin(data: Uint8Array): Promise<void> {
    if (!this.#over) await this.#stdin?.write(data);
  }
  closeStdin(): void {
    if (!this.#over) this.#stdin?.close();
  }
  signal(signal: number): boolean {
    if (this.#over || this.#exit !== undefined) return false;
    this.#signaled = true;
    if (this.#pid !== 0) return this.#context.engine.signal(this.#handle, signal);
    this.#early ??= [];
    this.#early.push(signal);
    return true;
  }
  cancel(as?: Outcome): void {
    this.#end(as === undefined ? { why: "cancel" } : { why: "as", outcome: as });
  }
  resize(rows: number, cols: number): void {
    if (!this.#over) this.#context.engine.resize(this.#handle, rows, cols);
  }
  hangUp(): void {
    if (this.#over) return;
    this.#context.engine.hangUp(this.#handle);
    this.#stdin?.abandon();
  }
  async background(): Promise<number[]> {
    return (await this.#members()).filter((pid) => this.#over || pid !== this.#pid);
  }

  #members(): Promise<number[]> {
    return this.#pid === 0 ? Promise.resolve([]) : findTree(this.id, this.#pid, this.group);
  }

  // ---- its end ----
  #end(ending: Ending): void {
    if (this.#over || this.#ending !== undefined) return;
    this.#ending = ending;
    this.#stopTimer();
    if (this.#pid !== 0) void this.#endTree();
  }

  async #endTree(): Promise<void> {
    const { engine } = this.#context;
    this.#tree = await endTree({
      find: () => this.#members(),
      watch: (pid, gone) => engine.waits.watch(pid, gone),
      killAll: this.group && (() => this.group?.kill()),
      graceMs: this.#graceMs,
    });
    // What it wrote is still read to the end (at most what a pipe holds), also where the reader has no credit; a process
    // that escaped does not keep the reply waiting.
    engine.pause(this.#handle, false);
    engine.letGo(this.#handle);
    this.#advance();
    if (this.#exit === undefined) this.#giveUp();
  }

  /** The leader does not end even by SIGKILL (a hung disk): the reply comes all the same. Its exit is known to the
   * engine a moment after its processes are gone, so that this waits for that moment. */
  #giveUp(): void {
    this.#clearTimer = after(500, () => {
      this.#closed = { held: true };
      this.#exitAt = performance.now();
      this.#conclude();
    });
  }

  #advance(): void {
    if (this.#over || this.#exit === undefined || this.#closed === undefined) return;
    if (this.#ending !== undefined) {
      if (this.#tree !== undefined) this.#conclude();
    } else if (this.#waitAll) void this.#waitForAll();
    else this.#conclude();
  }

  /** `wait: "all"` waits for every process, not only for those that hold the pipes. */
  async #waitForAll(): Promise<void> {
    if (this.#waiting) return;
    this.#waiting = true;
    const again = (): void => {
      this.#waiting = false;
      this.#advance();
    };
    const alive = await this.#members();
    if (alive.some((pid) => this.#context.engine.waits.watch(pid, again))) return;
    // Its time may have come meanwhile.
    if (this.#ending === undefined) this.#conclude();
  }

  #conclude(): void {
    const exit = this.#exit;
    if (this.#ending === undefined && exit?.status === STATUS_TAKEN) {
      this.#fail();
      return;
    }
    const outcome =
      this.#ending !== undefined && this.#tree !== undefined
        ? endedOutcome(this.#ending, this.#tree.killed, this.#tree.hard ? "SIGKILL" : "SIGTERM")
        : naturalOutcome(exit?.status ?? 0, () => this.#context.oom.claim(this.#startedAt));
    this.#finish(outcome);
  }

  #fail(): void {
    if (!this.#takeEnd()) return;
    this.#sink.fail(statusTaken());
    this.#forget();
  }

  #finish(outcome: Outcome): void {
    if (!this.#takeEnd()) return;
    const exit = this.#exit;
    const durationMs = (this.#exitAt === 0 ? performance.now() : this.#exitAt) - this.#startedAt;
    const tell = (left: number): void => {
      this.#sink.ended({
        outcome,
        durationMs,
        ...(left > 0 && { background: left }),
        ...(exit !== undefined && { cpuMs: exit.cpuMs }),
        ...(exit !== undefined && exit.maxRssBytes > 0 && { maxRssBytes: exit.maxRssBytes }),
      });
      this.#forget();
    };
    // Looking through /proc costs more than a short command: only where something is known to live on.
    if (exit !== undefined && (exit.groupAlive || this.#closed?.held || this.group?.populated))
      void this.background().then((left) => tell(left.length));
    else tell(0);
  }

  /** False where it is over already. */
  #takeEnd(): boolean {
    if (this.#over) return false;
    this.#over = true;
    this.#stopTimer();
    this.#stdin?.abandon();
    return true;
  }

  #forget(): void {
    this.#stdin = this.#exit = this.#closed = this.#ending = this.#tree = this.#early = undefined;
    this.group?.release();
    this.#context.done(this);
  }

  #stopTimer(): void {
    this.#clearTimer?.();
    this.#clearTimer = undefined;
  }
}
