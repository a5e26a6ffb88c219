// One command of a virtual sandbox: runs programs, and can be paused, signaled, ended and timed out like a process.
import { type Outcome, type OutputStream, signalName } from "../../../broker/contract/index.ts";
import type { CommandSink, ParsedExec, RunningCommand } from "../../../broker/endpoint/executor.ts";
import { after } from "../../../broker/link/after.ts";
import type { MemoryFiles } from "./files.ts";
import { PROGRAMS, type ProgramContext } from "./programs.ts";
import type { Simple } from "./words.ts";

/** Thrown into a program that was ended; caught where it was started. */
class Ended extends Error {}

/** Signals that do not end a process that has not asked for them. */
const HARMLESS = new Set([
  "SIGCHLD",
  "SIGCONT",
  "SIGURG",
  "SIGWINCH",
  "SIGSTOP",
  "SIGTSTP",
  "SIGTTIN",
  "SIGTTOU",
]);

export interface Surroundings {
  files: MemoryFiles;
  env: ReadonlyMap<string, string>;
  /** Of the sandbox, or of the session, which `cd` changes. */
  place: { cwd: string };
}

export class VirtualCommand implements RunningCommand, ProgramContext {
  argv: readonly string[] = [];
  readonly env: ReadonlyMap<string, string>;
  readonly files: MemoryFiles;
  readonly #place: { cwd: string };
  readonly #request: ParsedExec;
  readonly #sink: CommandSink;
  readonly #done: (command: VirtualCommand) => void;
  readonly #startedAt = performance.now();
  #over = false;
  #paused = false;
  #stdin: Uint8Array[] = [];
  #stdinOpen: boolean;
  #clearTimeout: (() => void) | undefined;
  /** Lets go of whatever the program waits for. */
  #wake: (() => void) | undefined;

  constructor(
    request: ParsedExec,
    sink: CommandSink,
    { files, env, place }: Surroundings,
    done: (command: VirtualCommand) => void,
  ) {
    this.#request = request;
    this.#sink = sink;
    this.#done = done;
    this.files = files;
    this.env = env;
    this.#place = place;
    this.#stdinOpen = request.stdin_open;
    if (request.stdin !== undefined) this.#stdin.push(request.stdin);
  }

  get cwd(): string {
    return this.#place.cwd;
  }
  set cwd(path: string) {
    this.#place.cwd = path;
  }

  start(pid: number, commands: readonly Simple[]): void {
    this.#sink.started(pid);
    const { timeout_ms } = this.#request;
    if (timeout_ms !== undefined) {
      const outcome: Outcome = { type: "timed_out", after_ms: timeout_ms, killed: 1, signal: "SIGTERM" };
      this.#clearTimeout = after(timeout_ms, () => this.end(outcome));
    }
    this.#run(commands).then(
      (code) => this.end({ type: "exited", code }),
      (error) => {
        if (error instanceof Ended) return;
        this.#sink.output("stderr", Buffer.from(`virtual sandbox: ${error}\n`));
        this.end({ type: "signaled", signal: "SIGABRT", core_dumped: false });
      },
    );
  }

  async #run(commands: readonly Simple[]): Promise<number> {
    let code = 0;
    for (const { argv, when } of commands) {
      if ((when === "success" && code !== 0) || (when === "failure" && code === 0)) continue;
      this.argv = argv;
      const [name = ""] = argv;
      if (name === "exit") return Number(argv[1] ?? code) & 0xff;
      code = name === "cd" ? await this.#changeFolder(argv[1]) : await this.#program(name);
    }
    return code;
  }

  async #program(name: string): Promise<number> {
    const program = PROGRAMS.get(name);
    if (program !== undefined) return program(this);
    await this.write("stderr", `${name}: not found\n`);
    return 127;
  }

  async #changeFolder(path = "/"): Promise<number> {
    const target = this.files.resolve(path, this.cwd);
    if (!this.files.isFolder(target)) {
      await this.write("stderr", `cd: ${path}: no such folder\n`);
      return 1;
    }
    this.cwd = target;
    return 0;
  }

  // What programs do.

  async write(stream: OutputStream, data: Uint8Array | string): Promise<void> {
    await this.#while(() => this.#paused);
    const bytes = typeof data === "string" ? Buffer.from(data) : data;
    this.#sink.output(this.#request.merge ? "stdout" : stream, bytes);
    // Between two parts a process may be scheduled out; one that never is would starve the others of this process.
    if (bytes.length >= 64 * 1024) await new Promise<void>((go) => setImmediate(go));
    if (this.#over) throw new Ended();
  }

  async read(): Promise<Uint8Array | undefined> {
    await this.#while(() => this.#stdin.length === 0 && this.#stdinOpen);
    return this.#stdin.shift();
  }

  async sleep(ms: number): Promise<void> {
    let clear: (() => void) | undefined;
    await new Promise<void>((wake) => {
      this.#wake = wake;
      clear = after(ms, wake);
    });
    clear?.();
    if (this.#over) throw new Ended();
  }

  async #while(holds: () => boolean): Promise<void> {
    while (!this.#over && holds()) {
      await new Promise<void>((wake) => {
        this.#wake = wake;
      });
    }
    if (this.#over) throw new Ended();
  }

  // What is done to it.

  end(outcome: Outcome): void {
    if (this.#over) return;
    this.#over = true;
    this.#clearTimeout?.();
    this.#wake?.();
    this.#done(this);
    this.#sink.ended({ outcome, durationMs: performance.now() - this.#startedAt });
  }

  pause(paused: boolean): void {
    this.#paused = paused;
    if (!paused) this.#wake?.();
  }
  async stdin(data: Uint8Array): Promise<void> {
    this.#stdin.push(new Uint8Array(data));
    this.#wakeReader();
  }
  closeStdin(): void {
    this.#stdinOpen = false;
    this.#wakeReader();
  }
  /** A program that sleeps is not woken by its input. */
  #wakeReader(): void {
    if (this.argv[0] === "cat") this.#wake?.();
  }
  signal(signal: number): boolean {
    if (this.#over) return false;
    const name = signalName(signal);
    if (!HARMLESS.has(name)) this.end({ type: "signaled", signal: name, core_dumped: false });
    return true;
  }
  cancel(as?: Outcome): void {
    this.end(as ?? { type: "canceled", killed: 1, signal: "SIGTERM" });
  }
  resize(): void {}
  background(): Promise<number[]> {
    return Promise.resolve([]);
  }
}
