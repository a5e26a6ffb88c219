// What executes in a virtual sandbox: a small interpreter and files in memory. Honest: what it does not understand is
// refused as a real one refuses it.
import {
  type Outcome,
  SessionClosedError,
  type SessionView,
  UnsupportedError,
} from "../../../broker/contract/index.ts";
import type {
  CommandSink,
  Executor,
  ParsedExec,
  RunningCommand,
  Sessions,
} from "../../../broker/endpoint/executor.ts";
import { VirtualCommand } from "./command.ts";
import { MemoryFiles } from "./files.ts";
import { PROGRAMS } from "./programs.ts";
import { parseLine, type Simple } from "./words.ts";

const SHELL = "/bin/sh";
const BASE_ENV: readonly [string, string][] = [["PATH", "/bin"]];

interface Session {
  view: SessionView;
  place: { cwd: string };
  env: Map<string, string>;
}

export class VirtualExecutor implements Executor {
  readonly #env: ReadonlyMap<string, string>;
  readonly #running = new Set<VirtualCommand>();
  readonly #sessions = new Map<string, Session>();
  #files: MemoryFiles | undefined;
  readonly #cwd: string;
  #lastPid = 1;

  constructor(env: Record<string, string> = {}, cwd = "/") {
    this.#cwd = cwd;
    this.#env = new Map([...BASE_ENV, ...Object.entries(env)]);
  }

  get files(): MemoryFiles {
    if (this.#files === undefined) {
      this.#files = new MemoryFiles(this.#cwd);
    }
    return this.#files;
  }

  exec(request: ParsedExec, sink: CommandSink): RunningCommand {
    if (request.port !== undefined)
      throw new UnsupportedError("a simulated sandbox has no ports", { field: "port", started: "no" });
    const session = this.#session(request.session);
    const place = session?.place ?? { cwd: this.#cwd };
    const surroundings = { files: this.files, env: environment(session?.env ?? this.#env, request), place };
    const command = new VirtualCommand(request, sink, surroundings, (ended) => this.#running.delete(ended));
    const begun = this.#prepare(request, place, sink);
    if (Array.isArray(begun)) {
      this.#running.add(command);
      command.start(++this.#lastPid, begun);
    } else {
      command.end(begun);
    }
    return command;
  }

  #session(name: string | undefined): Session | undefined {
    if (name === undefined) return undefined;
    const session = this.#sessions.get(name);
    if (session === undefined) {
      throw new SessionClosedError(`no session ${name} is open`, { reason: "closed", started: "no" });
    }
    return session;
  }

  /** The commands to run, or why there are none. */
  #prepare(request: ParsedExec, place: { cwd: string }, sink: CommandSink): Simple[] | Outcome {
    const { argv, shell = "", cwd } = request;
    if (cwd !== undefined) {
      place.cwd = this.files.resolve(cwd, place.cwd);
      if (!this.files.isFolder(place.cwd)) return notStarted("no_such_cwd", `no folder ${cwd}`);
    }
    if (argv !== undefined) {
      const [program = ""] = argv;
      const name = program.startsWith("/bin/") ? program.slice("/bin/".length) : program;
      if (name === "sh" && argv[1] === "-c") return this.#line(argv[2] ?? "", sink);
      if (!PROGRAMS.has(name)) return notStarted("no_such_program", `no program ${program}`);
      return [{ argv: [name, ...argv.slice(1)], when: "always" }];
    }
    return this.#line(shell, sink);
  }

  /** As a shell answers what it cannot parse: a word on stderr, and 2. */
  #line(line: string, sink: CommandSink): Simple[] | Outcome {
    try {
      return parseLine(line);
    } catch (error) {
      sink.output("stderr", Buffer.from(`sh: ${(error as Error).message}\n`));
      return { type: "exited", code: 2 };
    }
  }

  readonly sessions: Sessions = {
    open: async ({ session, shell = SHELL, cwd = this.#cwd, env = {} }) => {
      const open = this.#sessions.get(session);
      if (open !== undefined) return open.view;
      const view = { session, shell, pid: ++this.#lastPid, busy: false };
      const made = { view, place: { cwd: this.files.resolve(cwd) }, env: merge(this.#env, env) };
      this.#sessions.set(session, made);
      return view;
    },
    close: async (session) => this.#sessions.delete(session),
    list: () => [...this.#sessions.values()].map(({ view }) => view),
  };

  async info() {
    return {
      version: "simulated",
      pid: 1,
      uid: 0,
      hostname: "simulated",
      cwd: this.#cwd,
      shells: [SHELL],
      cpus: 1,
      sessions: this.#sessions.size,
    };
  }

  async close(): Promise<void> {
    for (const command of [...this.#running]) command.cancel();
    this.#sessions.clear();
  }
}

const notStarted = (
  reason: Extract<Outcome, { type: "not_started" }>["reason"],
  message: string,
): Outcome => ({ type: "not_started", reason, message });

function merge(
  base: ReadonlyMap<string, string>,
  changes: Record<string, string | null>,
): Map<string, string> {
  const env = new Map(base);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null) env.delete(name);
    else env.set(name, value);
  }
  return env;
}

function environment(
  base: ReadonlyMap<string, string>,
  { env, env_replace }: ParsedExec,
): ReadonlyMap<string, string> {
  if (env === undefined) return env_replace ? new Map() : base;
  return merge(env_replace ? new Map() : base, env);
}
