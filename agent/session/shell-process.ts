// A session's shell as a process: its descriptors, its output and its end. What that means for commands is decided in
// session.ts.
import { ExecRequest, type OutputStream } from "../../broker/contract/index.ts";
import { check } from "../../broker/contract/validate.ts";
import type { Membership } from "../exec/groups.ts";
import { BaseEnvironment, packRequest } from "../exec/request.ts";
import type { Engine } from "../native/engine.ts";
import type { StartFailure } from "../native/listener.ts";
import type { Environment } from "../process/environment.ts";
import { awaitsPipe } from "./awaiting.ts";
import type { CommandLine, Descriptor } from "./dialect.ts";
import {
  closeAll,
  makeMemoryFile,
  makeNonBlocking,
  makePipes,
  type Pipe,
  setContent,
  waiting,
  writeSome,
} from "./libc.ts";
import { OutputPipe } from "./output-pipe.ts";
import type { SessionShell } from "./shells.ts";
import { StatusPipe } from "./status-pipe.ts";
import { StdinFeed } from "./stdin-feed.ts";

export interface ShellListener {
  output(stream: OutputStream, data: Uint8Array): void;
  report(nonce: string, status: number): void;
  /** Its own end, as wait(2) gives it; all its output has been told by then. */
  exited(status: number): void;
}

export interface ShellOptions {
  engine: Engine;
  environment: Environment;
  shell: SessionShell;
  /** Value of the environment marker by which its processes are found. */
  marker: string;
  cwd: string;
  env: Readonly<Record<string, string | null>>;
  /** The cgroup that it is born in. */
  group: Membership | undefined;
}

export class ShellProcess {
  readonly #shell: SessionShell;
  readonly #listener: ShellListener;
  readonly #open: Set<number>;
  readonly #stdin: number;
  readonly #commands: number;
  readonly #text: number;
  readonly #status: StatusPipe;
  readonly #outputs: readonly OutputPipe[];
  readonly #ended = Promise.withResolvers<void>();
  #pid = 0;
  #drained: (() => void) | undefined;
  #toDrain = 0;
  #drains: Promise<void> = Promise.resolve();
  #exited = false;

  /** Starts it; resolves when it runs. Rejects with a StartFailure's `FailedStart` where it could not be started, with an error
   * of code EMFILE where no descriptors are left for it. */
  static async start(options: ShellOptions, listener: ShellListener): Promise<ShellProcess> {
    const { stdin, stdout, stderr, commands, status, text } = makeDescriptors();
    const child: Record<Descriptor, number> = {
      stdin: stdin.read,
      stdout: stdout.write,
      stderr: stderr.write,
      commands: commands.read,
      status: status.write,
      text,
    };
    const [a, b, c, d, e, f] = options.shell.dialect.descriptors.map((name) => child[name]);
    const { argv, dialect } = options.shell;
    const request = check(ExecRequest, {
      argv: [...argv, ...dialect.args],
      env: { ...options.env, ...dialect.env },
    });
    const packed = packRequest(
      request,
      {
        id: options.marker,
        argv: request.argv ?? [],
        cwd: options.cwd,
        user: undefined,
        stdin: false,
        cgroup: options.group?.folder,
        given: [a ?? -1, b ?? -1, c ?? -1, d ?? -1, e ?? -1, f ?? -1],
      },
      new BaseEnvironment(options.environment),
    );
    const own = [stdin.read, stdout.read, stderr.read, commands.write, status.read, text];
    const started = Promise.withResolvers<number>();
    let shell: ShellProcess | undefined;
    const handle = options.engine.start(packed, {
      started: started.resolve,
      failed: (failure) => started.reject(new FailedStart(failure)),
      output() {},
      exited: ({ status: ended }) => shell?.onExit(ended),
      closed() {},
      stdinTaken() {},
    });
    closeAll([stdin.write, stdout.write, stderr.write, commands.read, status.write]);
    if (handle < 0) {
      closeAll(own);
      throw new FailedStart({ stage: 1, errno: -handle, detail: 0 });
    }
    shell = new ShellProcess(options.engine, options.shell, listener, {
      stdin: stdin.read,
      stdout: stdout.read,
      stderr: stderr.read,
      commands: commands.write,
      status: status.read,
      text,
    });
    try {
      shell.#pid = await started.promise;
      shell.#send(dialect.setup);
      return shell;
    } catch (thrown) {
      await shell.#release();
      throw thrown;
    }
  }

  private constructor(
    engine: Engine,
    shell: SessionShell,
    listener: ShellListener,
    own: Record<Descriptor, number>,
  ) {
    this.#shell = shell;
    this.#listener = listener;
    this.#open = new Set(Object.values(own));
    this.#stdin = own.stdin;
    this.#commands = own.commands;
    this.#text = own.text;
    makeNonBlocking(own.commands);
    this.#status = new StatusPipe(engine, own.status, (nonce, status) => listener.report(nonce, status));
    const idle = (): void => {
      this.#toDrain -= 1;
      if (this.#toDrain === 0) this.#drained?.();
    };
    this.#outputs = [
      new OutputPipe(own.stdout, (data) => listener.output("stdout", data), idle),
      new OutputPipe(own.stderr, (data) => listener.output("stderr", data), idle),
    ];
  }

  get pid(): number {
    return this.#pid;
  }
  /** Resolves when it has ended and its descriptors are closed. */
  get ended(): Promise<void> {
    return this.#ended.promise;
  }

  /** Lays `text` ready for `run`. Throws, with the errno's name as its code, where the whole of it cannot be. */
  load(text: string): void {
    const whole = this.#shell.dialect.wrap?.(text) ?? text;
    setContent(this.#text, Buffer.from(whole.endsWith("\n") ? whole : `${whole}\n`));
  }

  /** Has it run what `load` got. */
  run(line: CommandLine): void {
    this.#send(this.#shell.dialect.run(line));
    this.#status.expect();
  }

  /** Has it report `nonce`, when it comes to that. */
  sync(nonce: string): void {
    this.#send(this.#shell.dialect.sync(nonce));
  }

  /** Whether it has done all that it was told to, has nothing more to report, and waits for another line. */
  get awaitsLine(): boolean {
    if (this.#exited || !this.#open.has(this.#commands)) return false;
    if (waiting(this.#commands) > 0 || !awaitsPipe(this.#pid, this.#commands)) return false;
    return this.#status.empty;
  }

  /** Throws (EMFILE) where no descriptors are left. */
  feed(): StdinFeed {
    return new StdinFeed(this.#stdin);
  }

  pause(paused: boolean): void {
    for (const output of this.#outputs) output.pause(paused);
  }

  /** Resolves when all that was written before now has been told. */
  drain(): Promise<void> {
    // One after the other: a shell may end while its last command is being drained.
    this.#drains = this.#drains.then(
      () =>
        new Promise((resolve) => {
          this.#drained = resolve;
          this.#toDrain = this.#outputs.length;
          for (const output of this.#outputs) output.drain();
        }),
    );
    return this.#drains;
  }

  get interruptOnce(): boolean {
    return this.#shell.dialect.interruptOnce;
  }

  /** To its process group, without the background jobs that ignore it: SIGINT is what Ctrl-C would do. */
  signal(signal: NodeJS.Signals): boolean {
    if (this.#exited) return false;
    try {
      return process.kill(-this.#pid, signal);
    } catch {
      return false;
    }
  }

  /** No more commands: an idle shell ends by itself, with its EXIT trap. */
  hangUp(): void {
    this.#closeOwn(this.#commands);
  }

  private onExit(status: number): void {
    if (this.#exited) return;
    this.#exited = true;
    void (async () => {
      await this.drain();
      this.#listener.exited(status);
      await this.#release();
      this.#ended.resolve();
    })();
  }

  #send(text: string): void {
    // Lines are far shorter than a pipe, and one command runs at a time: it always fits.
    if (this.#open.has(this.#commands)) writeSome(this.#commands, Buffer.from(text));
  }

  #closeOwn(end: number): void {
    if (this.#open.delete(end)) closeAll([end]);
  }

  async #release(): Promise<void> {
    await this.#status.close();
    for (const output of this.#outputs) await output.close();
    for (const end of this.#open) this.#closeOwn(end);
  }
}

/** All that a shell is driven by, or none of it. */
function makeDescriptors(): Record<Exclude<Descriptor, "text">, Pipe> & { text: number } {
  const text = makeMemoryFile("command");
  try {
    const [stdin, stdout, stderr, commands, status] = makePipes(5) as [Pipe, Pipe, Pipe, Pipe, Pipe];
    return { stdin, stdout, stderr, commands, status, text };
  } catch (thrown) {
    closeAll([text]);
    throw thrown;
  }
}

/** It could not be started. */
export class FailedStart extends Error {
  readonly failure: StartFailure;
  constructor(failure: StartFailure) {
    super("the shell could not be started");
    this.failure = failure;
  }
}
