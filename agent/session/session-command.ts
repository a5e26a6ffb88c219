// One command in a session: waits for its turn, runs, and is ended when its time is up or it is canceled.
import { randomBytes } from "node:crypto";
import { type Outcome, type OutputStream, SandmeshError } from "../../broker/contract/index.ts";
import type { CommandSink, ParsedExec, RunningCommand } from "../../broker/endpoint/executor.ts";
import { after } from "../../broker/link/after.ts";
import { startLack } from "../exec/failure.ts";
import type { Membership } from "../exec/groups.ts";
import { type Ending, endedOutcome } from "../exec/outcome.ts";
import { noProcess, SIGINT, send } from "../exec/signals.ts";
import { endTree } from "../exec/tree.ts";
import { subshellPrelude } from "./dialect.ts";
import { lastPid, type Moment, momentAgo, processesSince, type SessionProcesses } from "./foreground.ts";
import { type Interrupted, Interruption, LOOK_MS } from "./interruption.ts";
import type { ShellProcess } from "./shell-process.ts";
import type { StdinFeed } from "./stdin-feed.ts";

/** When it is first looked whether the shell is back without having reported, ms; then each time after twice as long, so
 * that a command of minutes costs nothing, and the longest time between two looks. */
const FIRST_QUIET_MS = 200;
const LAST_QUIET_MS = 15_000;

/** What a command needs of its session. */
export interface CommandHost {
  readonly shell: ShellProcess;
  readonly marker: string;
  readonly group: Membership | undefined;
  lastStatus: number;
  /** Calls back when the process has ended; false where it has already. */
  watch(pid: number, gone: () => void): boolean;
  /** The command is over and the shell is ready for the next. */
  done(command: SessionCommand): void;
  /** The shell does not come back: the session ends. */
  giveUp(): void;
  /** The shell is back and cannot tell it: the session ends. Returns what the command is told when it has. */
  giveUpSilent(): SandmeshError;
  /** What a command is told whose turn does not come any more. */
  readonly closedError: SandmeshError;
}

const newNonce = (): string => randomBytes(12).toString("hex");

export class SessionCommand implements RunningCommand {
  readonly request: ParsedExec;
  readonly #host: CommandHost;
  readonly #sink: CommandSink;
  readonly #begun = Promise.withResolvers<void>();
  #state: "queued" | "running" | "reported" | "ended" = "queued";
  #startedAt = 0;
  #lastPid = 0;
  #first = "";
  /** The report that says that the shell is ready for another line. */
  #expected: string | undefined;
  #back: (() => void) | undefined;
  #status: number | undefined;
  #feed: StdinFeed | undefined;
  #clearTimer: (() => void) | undefined;
  #quiet: ReturnType<typeof setTimeout> | undefined;
  #ending: Ending | undefined;
  #wasInterrupted = false;
  /** The shell came back and did not say so. */
  #silent: SandmeshError | undefined;

  constructor(request: ParsedExec, sink: CommandSink, host: CommandHost) {
    this.request = request;
    this.#sink = sink;
    this.#host = host;
  }

  /** Its turn has come. `cwd` is absolute. Where something that it needs is not to be had it has not started, and `backlog`
   * is not taken. */
  start(backlog: () => readonly { stream: OutputStream; data: Uint8Array }[], cwd: string | undefined): void {
    const { stdin, stdin_open, timeout_ms, env, merge } = this.request;
    const apart = cwd !== undefined || env !== undefined;
    try {
      this.#prepare(apart ? subshellPrelude(cwd, env ?? {}) : "");
    } catch (thrown) {
      this.#finish(startLack(thrown));
      return;
    }
    this.#state = "running";
    this.#startedAt = performance.now();
    this.#sink.started(this.#host.shell.pid);
    for (const { stream, data } of backlog()) this.output(stream, data);
    if (stdin !== undefined) void this.#feed?.write(stdin);
    if (!stdin_open) this.#feed?.close();
    this.#begun.resolve();
    if (timeout_ms !== undefined)
      this.#clearTimer = after(timeout_ms, () => void this.#end({ why: "timeout", afterMs: timeout_ms }));
    this.#first = newNonce();
    this.#expected = this.#first;
    this.#host.shell.run({ nonce: this.#first, lastStatus: this.#host.lastStatus, merge, apart });
    this.#listen(FIRST_QUIET_MS);
  }

  /** All that may fail, before anything of it runs. */
  #prepare(prelude: string): void {
    const { shell, stdin, stdin_open } = this.request;
    this.#lastPid = lastPid();
    if (stdin_open || (stdin !== undefined && stdin.length > 0)) this.#feed = this.#host.shell.feed();
    this.#host.shell.load(prelude + (shell ?? ""));
  }

  /** What a command may do to the shell (disable a builtin, close its descriptors) can keep it from saying that it is
   * back. */
  #listen(inMs: number): void {
    this.#quiet = setTimeout(async () => {
      if (await this.#isSilent()) this.#silent = this.#host.giveUpSilent();
      else if (this.#state === "running") this.#listen(Math.min(LAST_QUIET_MS, inMs * 2));
    }, inMs);
  }

  /** Whether the shell waits for another line without having reported. */
  async #isSilent(): Promise<boolean> {
    // What it has just said may be on its way to here still.
    for (let looks = 0; looks < 3; looks++) {
      if (this.#state !== "running" || this.#expected === undefined || !this.#host.shell.awaitsLine)
        return false;
      await Bun.sleep(LOOK_MS);
    }
    return this.#state === "running" && this.#expected !== undefined && this.#silent === undefined;
  }

  /** Its turn has come, but it cannot be started. */
  refuse(why: Outcome | SandmeshError): void {
    this.#finish(why);
  }

  /** The shell ended before its turn, which nobody asked for. */
  refuseClosed(): void {
    this.#finish(this.#host.closedError);
  }

  output(stream: OutputStream, data: Uint8Array): void {
    if (this.#state === "running" || this.#state === "reported")
      this.#sink.output(this.request.merge ? "stdout" : stream, data);
  }

  /** The shell has said `nonce`. */
  report(nonce: string, status: number): void {
    if (nonce !== this.#first && nonce !== this.#expected) return;
    // An interrupt may throw the first report away, with the line that it stood in; the second then has the status.
    this.#status ??= status & 0xff;
    if (nonce !== this.#expected) return;
    this.#expected = undefined;
    this.#back?.();
    if (this.#ending === undefined) void this.#complete();
  }

  async #complete(): Promise<void> {
    this.#state = "reported";
    await this.#host.shell.drain();
    this.#finish({ type: "exited", code: this.#status ?? 0 });
  }

  /** The shell has ended, with all output told: `itself` says how, where this command's end was not asked for. */
  shellEnded(itself: Outcome | SandmeshError): void {
    if (this.#state === "queued") this.#missed();
    else if (this.#silent !== undefined) this.#finish(this.#silent);
    else if (this.#ending !== undefined) this.#finish(endedOutcome(this.#ending, 1, "SIGKILL"));
    else this.#finish(itself);
  }

  /** The shell ended while it was looked whether this may begin. */
  #missed(): void {
    if (this.#ending === undefined) this.refuseClosed();
    else this.#finish(endedOutcome(this.#ending, 0, "SIGTERM"));
  }

  /** The session is being closed; shellEnded follows. */
  sessionCloses(): void {
    this.#ending ??= { why: "cancel" };
  }

  pause(paused: boolean): void {
    if (this.#state === "running" || this.#state === "reported") this.#host.shell.pause(paused);
  }

  async stdin(data: Uint8Array): Promise<void> {
    await this.#begun.promise;
    await this.#feed?.write(data);
  }

  closeStdin(): void {
    void this.#begun.promise.then(() => this.#feed?.close());
  }

  /** SIGINT as Ctrl-C gives it, to the shell too; another signal to what the command has started, not to the shell. Throws
   * InvalidRequestError where its turn has not come. */
  signal(signal: number): boolean | Promise<boolean> {
    if (this.#state === "queued") throw noProcess("a command that waits for its turn in its session");
    if (this.#state !== "running") return false;
    if (signal === SIGINT) {
      this.#interrupt();
      return true;
    }
    return this.background().then((pids) => {
      for (const pid of pids) send(pid, signal);
      // Also where all that runs is the shell's own.
      return this.#state === "running";
    });
  }

  cancel(as?: Outcome): void {
    void this.#end(as === undefined ? { why: "cancel" } : { why: "as", outcome: as });
  }

  resize(): void {}

  background(): Promise<number[]> {
    if (this.#state === "queued") return Promise.resolve([]);
    return processesSince(this.#session(), this.#since());
  }

  #session(): SessionProcesses {
    const { marker, shell, group } = this.#host;
    return { marker, shell: shell.pid, group };
  }

  #since(): Moment {
    return momentAgo(performance.now() - this.#startedAt, this.#lastPid);
  }

  /** SIGINT to the shell's group, and a report to tell when it is back. */
  #interrupt(): void {
    if (!this.#wasInterrupted || !this.#host.shell.interruptOnce) this.#host.shell.signal("SIGINT");
    this.#wasInterrupted = true;
    this.#expected = newNonce();
    this.#host.shell.sync(this.#expected);
  }

  /** Whether the shell is back within that time. */
  #isBack(ms: number): Promise<boolean> {
    if (this.#expected === undefined) return Promise.resolve(true);
    return new Promise((resolve) => {
      const timer = setTimeout(() => resolve(false), ms);
      this.#back = () => {
        clearTimeout(timer);
        resolve(true);
      };
    });
  }

  async #end(ending: Ending): Promise<void> {
    if (this.#state === "queued") {
      this.#ending = ending;
      this.#finish(endedOutcome(ending, 0, "SIGTERM"));
      return;
    }
    if (this.#state !== "running" || this.#ending !== undefined) return;
    // What had ended before is not ended by this.
    if (await this.#isSilent()) {
      this.#silent ??= this.#host.giveUpSilent();
      return;
    }
    if (this.#state !== "running" || this.#ending !== undefined || this.#silent !== undefined) return;
    this.#ending = ending;
    const find = this.#finder();
    const interruption = new Interruption(this.#interrupted(find));
    const result = await interruption.bringBack(this.request.grace_ms);
    if (result === undefined) return;
    if (!result.isBack) {
      // shellEnded comes when it is dead.
      this.#host.giveUp();
      return;
    }
    const left = await this.#endLeft(find, interruption.seen);
    const by = left === undefined || result.by === "SIGKILL" ? result.by : left;
    await this.#host.shell.drain();
    this.#finish(endedOutcome(ending, interruption.seen.size, by));
  }

  #finder(): () => Promise<number[]> {
    const since = this.#since();
    const session = this.#session();
    return () => processesSince(session, since);
  }

  #interrupted(find: () => Promise<number[]>): Interrupted {
    const runs = (): boolean => this.#state === "running";
    return {
      find,
      interrupt: () => this.#interrupt(),
      askAgain: () => {
        if (this.#expected !== undefined) this.#host.shell.sync(this.#expected);
      },
      isBack: (ms) => this.#isBack(ms),
      get runs() {
        return runs();
      },
    };
  }

  /** What the command left in the background is of its tree. Answers by which signal it ended; undefined where there is none. */
  async #endLeft(
    find: () => Promise<number[]>,
    seen: Set<number>,
  ): Promise<"SIGTERM" | "SIGKILL" | undefined> {
    const left = await find();
    if (left.length === 0) return undefined;
    for (const pid of left) seen.add(pid);
    const watch = (pid: number, gone: () => void) => this.#host.watch(pid, gone);
    const { hard } = await endTree({ find, watch, graceMs: this.request.grace_ms });
    return hard ? "SIGKILL" : "SIGTERM";
  }

  #finish(end: Outcome | SandmeshError): void {
    if (this.#state === "ended") return;
    const queued = this.#state === "queued";
    this.#state = "ended";
    this.#clearTimer?.();
    clearTimeout(this.#quiet);
    this.#begun.resolve();
    this.#back?.();
    this.#feed?.end();
    if (!queued) {
      const code = "type" in end && end.type === "exited" ? end.code : undefined;
      this.#host.lastStatus = code ?? this.#status ?? 130;
      this.#host.shell.pause(false);
    }
    if (end instanceof SandmeshError) this.#sink.fail(end);
    else this.#sink.ended({ outcome: end, durationMs: queued ? 0 : performance.now() - this.#startedAt });
    this.#host.done(this);
  }
}
