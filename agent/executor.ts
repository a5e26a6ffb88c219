// The daemon's Executor: real commands at once; files, sessions and facts loaded when they are first asked for, since
// a boot does not need them.
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

/** Sessions, with the commands that run in them. */
export interface SessionCommands extends Sessions {
  exec(request: ParsedExec, sink: CommandSink): RunningCommand;
  closeAll(graceMs: number): Promise<void>;
}

export interface ExecutorParts {
  commands: Commands;
  files: Files;
  sessions: SessionCommands;
  info(): Promise<ExecutorInfo>;
}

export function composeExecutor({ commands, files, sessions, info }: ExecutorParts): Executor {
  return {
    exec: (request, sink) =>
      request.session === undefined ? commands.exec(request, sink) : sessions.exec(request, sink),
    files,
    sessions,
    info,
    async close(graceMs) {
      await sessions.closeAll(graceMs);
      await commands.close(graceMs);
    },
  };
}

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
