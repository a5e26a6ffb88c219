// The daemon's Executor: real commands at once; files, sessions and facts loaded when they are first asked for, since
// a boot does not need them.
import { SessionClosedError } from "../broker/contract/index.ts";
import type { Executor, ExecutorInfo, Files, Trees } from "../broker/endpoint/executor.ts";
import type { Commands } from "./exec/exec.ts";
import type { Listings } from "./files/listings.ts";
import type { Engine } from "./native/engine.ts";
import { Ports } from "./ports/ports.ts";
import type { Environment } from "./process/environment.ts";
import { DAEMON_VERSION } from "./process/version.ts";
import type { SessionCommands } from "./session/sessions.ts";

export interface ExecutorOptions {
  engine: Engine;
  commands: Commands;
  /** What commands and sessions start from. */
  environment: Environment;
  /** Where relative paths start. */
  cwd: string;
}

export function createExecutor({ engine, commands, environment, cwd }: ExecutorOptions): Executor {
  const sessions = lazySessions(async () =>
    (await import("./session/sessions.ts")).createSessions({
      engine,
      environment,
      cwd,
      oom: commands.oom,
      group: () => commands.groups()?.take(),
    }),
  );
  let kept: Promise<Listings> | undefined;
  const listings = (): Promise<Listings> =>
    (kept ??= import("./files/listings.ts").then((loaded) => new loaded.Listings()));
  const files = lazyFiles(async () => {
    const { createFiles } = await import("./files/files.ts");
    return createFiles({ cwd, folders: engine.folders, listings: await listings() });
  });
  const trees = lazyTrees(async () => {
    const { createTrees } = await import("./trees/trees.ts");
    return createTrees({ cwd, engine, listings: await listings() });
  });
  const ports = new Ports();
  const loadInfo = async (): Promise<() => Promise<ExecutorInfo>> => {
    const { createInfo } = await import("./info/info.ts");
    return createInfo({
      version: DAEMON_VERSION,
      cwd,
      shells: () => commands.shells().map(({ argv }) => argv.join(" ")),
      sessions: () => sessions.list().length,
      treeEnd: () => (commands.groups()?.inForce ? "cgroup" : "search"),
    });
  };
  return {
    exec: (request, sink) =>
      request.port !== undefined
        ? ports.exec(request.port, request, sink)
        : request.session === undefined
          ? commands.exec(request, sink)
          : sessions.exec(request, sink),
    files,
    trees,
    sessions,
    info: async () => (await loadInfo())(),
    async close(graceMs) {
      trees.close();
      ports.close();
      await Promise.all([sessions.closeAll(graceMs), commands.close(graceMs)]);
    },
  };
}

/** Sessions that load when the first is opened; until then none is. */
function lazySessions(load: () => Promise<SessionCommands>): SessionCommands {
  let loading: Promise<SessionCommands> | undefined;
  let loaded: SessionCommands | undefined;
  const sessions = async (): Promise<SessionCommands> => {
    loading ??= load();
    loaded = await loading;
    return loaded;
  };
  /** Behind an open that came first and still loads them. */
  const begun = async () => (loading === undefined ? undefined : await sessions());
  return {
    open: async (options) => (await sessions()).open(options),
    close: async (session) => (await begun())?.close(session) ?? false,
    list: () => loaded?.list() ?? [],
    exec(request, sink) {
      if (loaded !== undefined) return loaded.exec(request, sink);
      throw new SessionClosedError(`no session ${request.session} is open`, {
        reason: "closed",
        started: "no",
      });
    },
    closeAll: async (graceMs) => (await begun())?.closeAll(graceMs),
  };
}

/** Trees that load on first use. */
function lazyTrees(load: () => Promise<Trees>): Trees {
  let loading: Promise<Trees> | undefined;
  const trees = (): Promise<Trees> => (loading ??= load());
  return {
    hash: async (path, signal) => (await trees()).hash(path, signal),
    setAttributes: async (attributes) => (await trees()).setAttributes(attributes),
    glob: async (request) => (await trees()).glob(request),
    search: async (request) => (await trees()).search(request),
    watch: async (request) => (await trees()).watch(request),
    changes: async (request) => (await trees()).changes(request),
    endWatch: async (transfer) => (await loading)?.endWatch(transfer) ?? false,
    beneath: (root) => lazyTrees(async () => (await trees()).beneath(root)),
    close: () => void loading?.then((loaded) => loaded.close()),
  };
}

/** Files that load on first use. */
function lazyFiles(load: () => Promise<Files>): Files {
  let loaded: Promise<Files> | undefined;
  const files = (): Promise<Files> => (loaded ??= load());
  return {
    read: async (request) => (await files()).read(request),
    write: async (options) => (await files()).write(options),
    stat: async (path, follow) => (await files()).stat(path, follow),
    list: async (path, after, limit, signal) => (await files()).list(path, after, limit, signal),
    remove: async (path, recursive, missingOk, signal) =>
      (await files()).remove(path, recursive, missingOk, signal),
    mkdir: async (path, mode, parents) => (await files()).mkdir(path, mode, parents),
    rename: async (from, to) => (await files()).rename(from, to),
    pack: async (path) => (await files()).pack(path),
    unpack: async (path, owner) => (await files()).unpack(path, owner),
    beneath: (root) => lazyFiles(async () => (await files()).beneath(root)),
  };
}
