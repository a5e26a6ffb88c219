// The daemon's Executor: real commands at once; files, sessions and facts loaded when they are first asked for, since
// a boot does not need them.
import { SessionClosedError, UnsupportedError } from "../broker/contract/index.ts";
import type {
  CommandSink,
  Executor,
  ExecutorInfo,
  Files,
  ParsedExec,
  RunningCommand,
  Sessions,
} from "../broker/endpoint/executor.ts";
import type { Commands } from "./exec/exec.ts";
import type { Environment } from "./process/environment.ts";
import { DAEMON_VERSION } from "./process/version.ts";

/** Sessions, with the commands that run in them. */
export interface SessionCommands extends Sessions {
  exec(request: ParsedExec, sink: CommandSink): RunningCommand;
  closeAll(graceMs: number): Promise<void>;
}

export interface ExecutorOptions {
  commands: Commands;
  /** What commands and sessions start from. */
  environment: Environment;
  /** Where relative paths start. */
  cwd: string;
}

export function createExecutor({ commands, cwd }: ExecutorOptions): Executor {
  const sessions = NO_SESSIONS;
  const files = lazyFiles(async () => (await import("./files/files.ts")).createFiles({ cwd }));
  const loadInfo = async (): Promise<() => Promise<ExecutorInfo>> => {
    const { createInfo } = await import("./info/info.ts");
    return createInfo({
      version: DAEMON_VERSION,
      cwd,
      shells: () => commands.shells().map(({ argv }) => argv.join(" ")),
      sessions: () => sessions.list().length,
    });
  };
  return {
    exec: (request, sink) =>
      request.session === undefined ? commands.exec(request, sink) : sessions.exec(request, sink),
    files,
    sessions,
    info: async () => (await loadInfo())(),
    async close(graceMs) {
      await Promise.all([sessions.closeAll(graceMs), commands.close(graceMs)]);
    },
  };
}

/** What a daemon without sessions answers. */
const NO_SESSIONS: SessionCommands = {
  open: () => Promise.reject(new UnsupportedError("this daemon has no sessions", { field: "session" })),
  close: () => Promise.resolve(false),
  list: () => [],
  exec() {
    throw new SessionClosedError("no such session is open", { reason: "closed", started: "no" });
  },
  closeAll: () => Promise.resolve(),
};

/** Files that load on first use. */
export function lazyFiles(load: () => Promise<Files>): Files {
  let loaded: Promise<Files> | undefined;
  const files = (): Promise<Files> => (loaded ??= load());
  return {
    read: async (request) => (await files()).read(request),
    write: async (options) => (await files()).write(options),
    stat: async (path, follow) => (await files()).stat(path, follow),
    list: async (path, after, limit) => (await files()).list(path, after, limit),
    remove: async (path, recursive, missingOk) => (await files()).remove(path, recursive, missingOk),
    mkdir: async (path, mode, parents) => (await files()).mkdir(path, mode, parents),
    rename: async (from, to) => (await files()).rename(from, to),
    pack: async (path) => (await files()).pack(path),
    unpack: async (path, owner) => (await files()).unpack(path, owner),
  };
}
