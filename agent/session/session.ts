// A persistent shell: state lives on from one command to the next. Commands run one at a time, in the order in which
// they came; a bounded number waits.
import { randomBytes } from "node:crypto";
import { readlink, stat } from "node:fs/promises";
import {
  BusyError,
  IncompleteCommandError,
  InvalidRequestError,
  newUuidV7,
  type SandmeshError,
  SessionClosedError,
  type SessionView,
} from "../../broker/contract/index.ts";
import type { CommandSink, ParsedExec, RunningCommand } from "../../broker/endpoint/executor.ts";
import { notStarted, startLack, statusTaken } from "../exec/failure.ts";
import type { Membership } from "../exec/groups.ts";
import { naturalOutcome } from "../exec/outcome.ts";
import { endTree, findTree } from "../exec/tree.ts";
import type { Engine } from "../native/engine.ts";
import { STATUS_TAKEN } from "../native/listener.ts";
import type { Environment } from "../process/environment.ts";
import type { OomKills } from "../process/oom.ts";
import { Backlog } from "./backlog.ts";
import { openMoments } from "./foreground.ts";
import { incompleteBecause, mayBeIncomplete } from "./incomplete.ts";
import { type CommandHost, SessionCommand } from "./session-command.ts";
import { ShellProcess } from "./shell-process.ts";
import type { SessionShell } from "./shells.ts";

/** Commands that may wait for their turn. */
export const MAX_QUEUED = 64;
/** How long a shell has to become ready, ms: a large Python start on a busy machine. */
const START_DEADLINE_MS = 15_000;
/** How long an idle shell has for its EXIT trap when its session is closed, ms. */
const EXIT_MS = 250;

export interface SessionOptions {
  session: string;
  engine: Engine;
  environment: Environment;
  oom: OomKills;
  shell: SessionShell;
  cwd: string;
  env: Readonly<Record<string, string | null>>;
  /** A cgroup for the shell and what it runs, if there is one to be had. */
  group: () => Membership | undefined;
  /** Once, when the shell has ended. */
  ended(session: Session): void;
}

export type ClosedReason = "exited" | "closed";

export class Session implements CommandHost {
  readonly marker = newUuidV7();
  readonly group: Membership | undefined;
  lastStatus = 0;
  readonly #options: SessionOptions;
  readonly #queue: SessionCommand[] = [];
  readonly #backlog = new Backlog();
  #shell: ShellProcess | undefined;
  #current: SessionCommand | undefined;
  #busySince = 0;
  #ready: { nonce: string; resolve(): void; reject(error: Error): void } | undefined;
  /** Why it takes no more commands. */
  #closed: { reason: ClosedReason; why: string } | undefined;

  private constructor(options: SessionOptions) {
    this.#options = options;
    this.group = options.group();
  }

  /** Starts the shell and waits until it takes commands. Throws SessionClosedError where it ends instead, FailedStart
   * where it cannot be started, an error of code EMFILE where no descriptors are left. */
  static async open(options: SessionOptions): Promise<Session> {
    const session = new Session(options);
    const ready = Promise.withResolvers<void>();
    const nonce = randomBytes(12).toString("hex");
    session.#ready = { nonce, resolve: ready.resolve, reject: ready.reject };
    const { engine, environment, shell, cwd, env } = options;
    const { marker, group } = session;
    try {
      openMoments();
      session.#shell = await ShellProcess.start(
        { engine, environment, shell, marker, cwd, env, group },
        {
          output: (stream, data) => session.#output(stream, data),
          report: (said, status) => session.#report(said, status),
          exited: (status) => session.#exited(status),
        },
      );
    } catch (thrown) {
      group?.release();
      throw thrown;
    }
    session.#shell.sync(nonce);
    const deadline = setTimeout(() => {
      session.giveUp();
      ready.reject(session.#closedError(`the shell was not ready within ${START_DEADLINE_MS} ms`));
    }, START_DEADLINE_MS);
    try {
      await ready.promise;
      // What shells say at their start (a banner, "no job control") is not a command's output.
      await session.#shell.drain();
      session.#backlog.take();
      session.#ready = undefined;
      return session;
    } finally {
      clearTimeout(deadline);
    }
  }

  get shell(): ShellProcess {
    if (this.#shell === undefined) throw this.#closedError("it has not started");
    return this.#shell;
  }

  get closedBecause(): { reason: ClosedReason; why: string } | undefined {
    return this.#closed;
  }

  get closedError(): SessionClosedError {
    return this.#closedError(this.#closed?.why ?? "it was closed");
  }

  view(): SessionView {
    return {
      session: this.#options.session,
      shell: this.#options.shell.argv.join(" "),
      pid: this.shell.pid,
      busy: this.#current !== undefined,
    };
  }

  /** Runs `request.shell`, or queues it. Throws InvalidRequestError for what a session cannot do, BusyError,
   * SessionClosedError. */
  exec(request: ParsedExec, sink: CommandSink): RunningCommand {
    this.#refuse(request);
    if (this.#closed !== undefined) throw this.closedError;
    if (this.#queue.length >= MAX_QUEUED)
      throw new BusyError(`${MAX_QUEUED} commands wait in session ${this.#options.session} already`, {
        started: "no",
      });
    const command = new SessionCommand(request, sink, this);
    this.#queue.push(command);
    this.#next();
    return command;
  }

  watch(pid: number, gone: () => void): boolean {
    return this.#options.engine.waits.watch(pid, gone);
  }

  done(command: SessionCommand): void {
    this.#options.oom.look();
    const at = this.#queue.indexOf(command);
    if (at >= 0) this.#queue.splice(at, 1);
    if (this.#current !== command) return;
    this.#current = undefined;
    this.#next();
  }

  giveUp(): void {
    this.#close("closed", "its shell could not be brought back from a command and was ended");
    void this.#endAll(0);
  }

  giveUpSilent(): SandmeshError {
    const why =
      "its shell came back from the command and could not say so, since the command changed what it needs for that (a builtin, a descriptor)";
    this.#close("closed", why);
    void this.#endAll(0);
    return this.#closedError(why, "yes");
  }

  /** Ends the shell and what it runs; resolves when they are gone. What waits is answered `canceled`. */
  async close(graceMs: number): Promise<void> {
    this.#close("closed", "it was closed");
    for (const command of this.#queue.splice(0)) command.cancel();
    this.shell.hangUp();
    if (this.#current !== undefined) {
      this.#current.sessionCloses();
      // An interactive shell ignores SIGTERM.
      this.shell.signal("SIGHUP");
    }
    const { promise, resolve } = Promise.withResolvers<void>();
    const timer = setTimeout(resolve, EXIT_MS);
    await Promise.race([this.shell.ended, promise]);
    clearTimeout(timer);
    await this.#endAll(graceMs);
    await this.shell.ended;
  }

  #next(): void {
    if (this.#current !== undefined || this.#closed !== undefined) return;
    const command = this.#queue.shift();
    if (command === undefined) return;
    this.#current = command;
    // Whatever befalls it, what waits behind it has its turn.
    this.#start(command).catch((thrown) => command.refuse(startLack(thrown)));
  }

  async #start(command: SessionCommand): Promise<void> {
    const text = command.request.shell ?? "";
    let cwd: string | undefined;
    if (command.request.cwd !== undefined) {
      cwd = await this.#folderOf(command.request.cwd);
      if (this.#current !== command) return;
      if (this.#closed !== undefined) return command.refuseClosed();
      if (cwd === undefined)
        return command.refuse(notStarted("no_such_cwd", `there is no folder ${command.request.cwd}`));
    }
    if (!this.#options.shell.python && mayBeIncomplete(text)) {
      const why = await incompleteBecause(this.#options, text);
      // Meanwhile it may have been canceled, or the shell may have ended.
      if (this.#current !== command) return;
      if (this.#closed !== undefined) return command.refuseClosed();
      if (why !== undefined) {
        const detail = { field: "shell", started: "no" } as const;
        return command.refuse(new IncompleteCommandError(`the command ends in the middle: ${why}`, detail));
      }
    }
    this.#options.oom.look();
    this.#busySince = performance.now();
    command.start(() => this.#backlog.take(), cwd);
  }

  /** Relative ones start where the shell is; undefined where there is no such folder. */
  async #folderOf(cwd: string): Promise<string | undefined> {
    try {
      const path = cwd.startsWith("/") ? cwd : `${await readlink(`/proc/${this.shell.pid}/cwd`)}/${cwd}`;
      return (await stat(path)).isDirectory() ? path : undefined;
    } catch {
      return undefined;
    }
  }

  #output(stream: "stdout" | "stderr", data: Uint8Array): void {
    if (this.#current === undefined) this.#backlog.add(stream, data);
    else this.#current.output(stream, data);
  }

  #report(nonce: string, status: number): void {
    if (nonce === this.#ready?.nonce) this.#ready.resolve();
    else this.#current?.report(nonce, status);
  }

  #exited(status: number): void {
    this.#close("exited", "its shell has exited");
    this.#ready?.reject(this.#closedError("its shell ended at once"));
    const current = this.#current;
    this.#current = undefined;
    current?.shellEnded(
      status === STATUS_TAKEN
        ? statusTaken()
        : naturalOutcome(status, () => this.#options.oom.claim(this.#busySince)),
    );
    for (const command of this.#queue.splice(0)) command.refuseClosed();
    // A session is its shell: what that has left behind goes too.
    void this.#endAll(0).then(() => this.group?.release());
    this.#options.ended(this);
  }

  async #endAll(graceMs: number): Promise<void> {
    await endTree({
      find: () => findTree(this.marker, this.shell.pid, this.group),
      watch: (pid, gone) => this.watch(pid, gone),
      killAll: this.group && (() => this.group?.kill()),
      graceMs,
    });
    // Where no descriptor was left to look with, nobody was found.
    this.shell.signal("SIGKILL");
  }

  #close(reason: ClosedReason, why: string): void {
    this.#closed ??= { reason, why };
  }

  #closedError(why: string, started: "no" | "yes" = "no"): SessionClosedError {
    return new SessionClosedError(`session ${this.#options.session} is not open: ${why}; open it again`, {
      reason: this.#closed?.reason ?? "closed",
      started,
    });
  }

  #refuse(request: ParsedExec): void {
    const refuse = (field: string, why: string): never => {
      throw new InvalidRequestError(`${field}: ${why}`, { field, started: "no" });
    };
    const fixed = "a session's shell has its own, which it began with: change it in the shell";
    if (request.user !== undefined) refuse("user", fixed);
    if (request.umask !== undefined) refuse("umask", fixed);
    if (request.nice !== undefined) refuse("nice", fixed);
    if (request.rlimits !== undefined) refuse("rlimits", fixed);
    if (request.env_replace) refuse("env_replace", fixed);
    if (request.pty !== undefined) refuse("pty", "a session's commands have no terminal");
    if (request.wait === "all")
      refuse("wait", "background jobs of a session live on; use the shell's `wait`");
    if (this.#options.shell.python && (request.cwd !== undefined || request.env !== undefined))
      refuse(request.cwd === undefined ? "env" : "cwd", "a Python session has os.chdir and os.environ");
    for (const name of Object.keys(request.env ?? {}))
      if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name))
        refuse("env", `${name} is not a name that a shell can export`);
  }
}
