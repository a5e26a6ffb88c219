// Sessions of executor.ts: which are open, by name.
import {
  BusyError,
  ConflictError,
  errnoOf,
  NotFoundError,
  SessionClosedError,
  type SessionView,
} from "../../broker/contract/index.ts";
import type { CommandSink, ParsedExec, RunningCommand, Sessions } from "../../broker/endpoint/executor.ts";
import { failureOutcome, isOutOfFiles } from "../exec/failure.ts";
import type { Membership } from "../exec/groups.ts";
import type { Engine } from "../native/engine.ts";
import type { Environment } from "../process/environment.ts";
import type { OomKills } from "../process/oom.ts";
import { type ClosedReason, Session } from "./session.ts";
import { FailedStart } from "./shell-process.ts";
import { findSessionShell } from "./shells.ts";

/** Open at once in one sandbox. */
const MAX_SESSIONS = 64;
/** Names of closed ones are remembered, to tell why they are not open. */
const MAX_REMEMBERED = 1000;
/** Between SIGTERM and SIGKILL when a session is closed, ms. */
const CLOSE_GRACE_MS = 500;

export interface SessionsOptions {
  engine: Engine;
  /** What shells start from. */
  environment: Environment;
  /** Where they start, and relative paths. */
  cwd: string;
  oom: OomKills;
  /** A cgroup for a session, where there can be one. */
  group: () => Membership | undefined;
}

export interface SessionCommands extends Sessions {
  /** Runs `request.shell` in the session `request.session`; throws SessionClosedError, BusyError or
   * InvalidRequestError. A `cwd` or `env` makes it a command of its own in a subshell, whose changes do not last. */
  exec(request: ParsedExec, sink: CommandSink): RunningCommand;
  /** Ends all sessions and what runs in them. */
  closeAll(graceMs: number): Promise<void>;
}

interface Entry {
  settings: string;
  opening: Promise<Session>;
  session?: Session;
}

export function createSessions(options: SessionsOptions): SessionCommands {
  const entries = new Map<string, Entry>();
  const closed = new Map<string, { reason: ClosedReason; why: string }>();

  const forget = (name: string, why: { reason: ClosedReason; why: string }): void => {
    closed.delete(name);
    closed.set(name, why);
    for (const oldest of closed.keys()) {
      if (closed.size <= MAX_REMEMBERED) break;
      closed.delete(oldest);
    }
  };

  const begin = async (request: Parameters<Sessions["open"]>[0]): Promise<Session> => {
    const path = request.env?.PATH ?? options.environment.get("PATH");
    const shell = findSessionShell(request.shell, path);
    const cwd =
      request.cwd === undefined
        ? options.cwd
        : request.cwd.startsWith("/")
          ? request.cwd
          : `${options.cwd}/${request.cwd}`;
    try {
      return await Session.open({
        session: request.session,
        engine: options.engine,
        environment: options.environment,
        oom: options.oom,
        group: options.group,
        shell,
        cwd,
        env: request.env ?? {},
        ended(session) {
          if (entries.get(request.session)?.session === session) entries.delete(request.session);
          forget(request.session, session.closedBecause ?? { reason: "exited", why: "its shell has exited" });
        },
      });
    } catch (thrown) {
      if (!(thrown instanceof FailedStart)) throw thrown;
      const outcome = failureOutcome(thrown.failure, { program: shell.argv[0] ?? "", cwd, user: undefined });
      const scarce = ["out_of_memory", "out_of_pids", "out_of_files"].includes(outcome.reason);
      if (scarce) throw new BusyError(outcome.message, { reason: outcome.reason, started: "no" });
      const field = outcome.reason === "no_such_cwd" ? "cwd" : "shell";
      throw new NotFoundError(outcome.message, { field, reason: outcome.reason, started: "no" });
    }
  };

  const start = (request: Parameters<Sessions["open"]>[0]): Promise<Session> =>
    begin(request).catch((thrown) => {
      // Already the shell's path cannot be followed without a descriptor.
      if (!isOutOfFiles(thrown)) throw thrown;
      const message = `no file descriptors left to open the session (${errnoOf(thrown)})`;
      throw new BusyError(message, { reason: "out_of_files", started: "no" });
    });

  const close = async (name: string, graceMs: number): Promise<boolean> => {
    const entry = entries.get(name);
    if (entry === undefined) return false;
    const session = await entry.opening.catch(() => undefined);
    await session?.close(graceMs);
    if (entries.get(name) === entry) entries.delete(name);
    return session !== undefined;
  };

  return {
    async open(request): Promise<SessionView> {
      const settings = JSON.stringify([request.shell, request.cwd, Object.entries(request.env ?? {}).sort()]);
      const there = entries.get(request.session);
      if (there !== undefined) {
        if (there.settings === settings) return (await there.opening).view();
        throw new ConflictError(
          `session ${request.session} is open with another shell, folder or environment; close it first`,
          { field: "session" },
        );
      }
      if (entries.size >= MAX_SESSIONS)
        throw new BusyError(`${MAX_SESSIONS} sessions are open in this sandbox already; close one`);
      const entry: Entry = { settings, opening: start(request) };
      entries.set(request.session, entry);
      try {
        entry.session = await entry.opening;
        closed.delete(request.session);
        return entry.session.view();
      } catch (thrown) {
        if (entries.get(request.session) === entry) entries.delete(request.session);
        throw thrown;
      }
    },
    close: (name) => close(name, CLOSE_GRACE_MS),
    list: () =>
      [...entries.values()].flatMap(({ session }) => (session === undefined ? [] : [session.view()])),
    exec(request, sink) {
      const name = request.session ?? "";
      const session = entries.get(name)?.session;
      if (session !== undefined) return session.exec(request, sink);
      const { reason, why } = closed.get(name) ?? { reason: "closed", why: "it was never opened" };
      throw new SessionClosedError(`session ${name} is not open: ${why}; open it again`, {
        reason,
        started: "no",
      });
    },
    async closeAll(graceMs) {
      await Promise.all([...entries.keys()].map((name) => close(name, graceMs)));
    },
  };
}
