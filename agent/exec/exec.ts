// Executor.exec for argv and shell lines: finds the shell and the user, packs the request, keeps what runs.
import { newUuidV7, type Outcome } from "../../broker/contract/index.ts";
import type { CommandSink, ParsedExec, RunningCommand } from "../../broker/endpoint/executor.ts";
import type { Engine } from "../native/engine.ts";
import type { Environment } from "../process/environment.ts";
import { OomKills } from "../process/oom.ts";
import { Command, type CommandContext } from "./command.ts";
import { type Attempt, noPipes, notStarted } from "./failure.ts";
import type { Groups, Membership } from "./groups.ts";
import { looks } from "./processes.ts";
import { BaseEnvironment, packRequest, tookSpare } from "./request.ts";
import { hasRoom } from "./room.ts";
import { findShells, type Shell } from "./shell.ts";
import { endTree } from "./tree.ts";
import { resolveUser } from "./user.ts";

export interface CommandsOptions {
  engine: Engine;
  /** What commands start from (process/environment.ts). */
  environment: Environment;
  /** Where relative paths start, and commands that name no folder. */
  cwd: string;
  /** Tried once, when the first command or session needs a group. */
  groups?: () => Groups | undefined;
}

/** A command that never came to be: nothing of it can be asked. */
const NOTHING: RunningCommand = {
  pause() {},
  stdin: () => Promise.resolve(),
  closeStdin() {},
  signal: () => false,
  cancel() {},
  resize() {},
  background: () => Promise.resolve([]),
};

/** A group costs 15 to 20 µs a command, some 2 % of one that does nothing: those have one that are meant to be ended, or
 * live long, and shell lines, since a spare shell waits in one. A plain program without a time limit is ended, if it is
 * canceled, as far as tree.ts finds it. */
const needsGroup = ({ timeout_ms, stdin_open, pty, wait }: ParsedExec): boolean =>
  timeout_ms !== undefined || stdin_open || pty !== undefined || wait === "all";

export class Commands {
  /** One for all that runs in the sandbox: each kill is one command's. */
  readonly oom: OomKills;
  readonly #options: CommandsOptions;
  readonly #base: BaseEnvironment;
  readonly #running = new Set<Command>();
  readonly #context: CommandContext;
  #shells: Shell[] | undefined;
  #groups: { found: Groups | undefined } | undefined;
  /** Whether the sandbox has room for a spare shell; undefined until the first line has come. */
  #room: boolean | undefined;
  /** Where the spare shell waits, or the next one will. */
  #ofSpare: Membership | undefined;
  #idle: (() => void) | undefined;

  constructor(options: CommandsOptions) {
    this.#options = options;
    this.oom = new OomKills(undefined, undefined, (fd, text) => options.engine.reread(fd, text));
    this.#base = new BaseEnvironment(options.environment);
    this.#context = {
      engine: options.engine,
      oom: this.oom,
      done: (command) => {
        this.#running.delete(command);
        if (this.#running.size === 0) this.#idle?.();
      },
    };
  }

  /** The image's shells, best first; looked for once, and again while there is none. */
  shells(): Shell[] {
    if (this.#shells === undefined || this.#shells.length === 0)
      this.#shells = findShells(this.#base.variables.get("PATH"));
    return this.#shells;
  }

  /** Cgroups for commands; undefined where there can be none. */
  groups(): Groups | undefined {
    this.#groups ??= { found: this.#options.groups?.() };
    return this.#groups.found;
  }

  /** See Executor.exec. A request without an id gets one of its own. */
  exec(request: ParsedExec, sink: CommandSink): RunningCommand {
    const fail = (outcome: Outcome): RunningCommand => {
      sink.ended({ outcome, durationMs: 0 });
      return NOTHING;
    };
    const argv = request.argv ?? this.#shellArgv(request.shell ?? "");
    if (argv === undefined)
      return fail(notStarted("no_shell", "the image has no shell (bash, sh, busybox); use argv"));
    const user = request.user === undefined ? undefined : resolveUser(request.user);
    if (request.user !== undefined && user === undefined)
      return fail(notStarted("no_such_user", `the image knows no user or group ${request.user}`));
    const id = request.id ?? newUuidV7();
    const cwd = this.#cwd(request.cwd);
    const stdin = request.stdin_open || (request.stdin !== undefined && request.stdin.length > 0);
    const room = this.#hasRoom();
    const spare = request.shell !== undefined && room;
    const attempt: Attempt = { program: argv[0] ?? "", cwd, user: request.user };
    const own = spare || needsGroup(request) ? this.groups()?.take() : undefined;
    if (spare) this.#ofSpare ??= this.groups()?.take();
    const command = new Command(id, request, attempt, sink, this.#context);
    // Added first: the engine's word of the end may come at any time after the start.
    this.#running.add(command);
    const groups = { cgroup: own?.folder, spareCgroup: this.#ofSpare?.folder };
    const packed = packRequest(request, { id, argv, cwd, user, stdin, spare, ...groups }, this.#base);
    const result = command.start(packed, request);
    if (result >= 0) {
      const took = tookSpare(packed);
      const group = took ? this.#changeWithSpare(own) : own;
      command.group = group;
      if (took) {
        const plain = { id, argv, cwd, user, stdin, cgroup: group?.folder };
        command.again = () => packRequest(request, plain, this.#base);
      }
      return command;
    }
    this.#running.delete(command);
    own?.release();
    return fail(noPipes(-result, attempt));
  }

  /** Ends all commands and whatever they left in the background, within `graceMs` and a second. */
  async close(graceMs: number): Promise<void> {
    const idle = new Promise<void>((resolve) => {
      this.#idle = resolve;
    });
    this.#options.engine.endSpare();
    for (const command of this.#running) command.cancel();
    await endTree({
      // Orphans are among them where the daemon is their reaper.
      find: async () => (await looks.next()).below(process.pid),
      watch: (pid, gone) => this.#options.engine.waits.watch(pid, gone),
      graceMs,
    });
    if (this.#running.size > 0) await idle;
  }

  /** The spare shell has become a command, with its group; the next one waits in what would have been the command's. */
  #changeWithSpare(own: Membership | undefined): Membership | undefined {
    const group = this.#ofSpare;
    this.#ofSpare = own;
    return group;
  }

  #hasRoom(): boolean {
    if (this.#room === undefined) {
      this.#room = hasRoom();
      if (!this.#room) this.#options.engine.startWithoutThreads();
    }
    return this.#room;
  }

  #shellArgv(line: string): string[] | undefined {
    const shell = this.shells()[0];
    return shell && [...shell.argv, "-c", line];
  }

  #cwd(cwd: string | undefined): string {
    if (cwd === undefined) return this.#options.cwd;
    return cwd.startsWith("/") ? cwd : `${this.#options.cwd}/${cwd}`;
  }
}
