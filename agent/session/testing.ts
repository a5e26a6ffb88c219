// For tests: sessions of this process' engine, gone after each test, and commands run to their end in them.
import { test } from "bun:test";
import { readFileSync } from "node:fs";
import { ExecRequest, newUuidV7 } from "../../broker/contract/index.ts";
import { check } from "../../broker/contract/validate.ts";
import type { CommandResult, RunningCommand } from "../../broker/endpoint/executor.ts";
import type { Groups } from "../exec/groups.ts";
import { testEngine } from "../exec/testing.ts";
import { commandEnvironment, ownEnvironment } from "../process/environment.ts";
import { OomKills } from "../process/oom.ts";
import { createSessions, type SessionCommands } from "./sessions.ts";

const open: SessionCommands[] = [];
/** For `afterEach` of each test file (a hook set here would be the first file's only). */
export async function closeSessions(): Promise<void> {
  for (const sessions of open.splice(0)) await sessions.closeAll(0);
}

export async function testSessions(cwd = "/", groups?: Groups): Promise<SessionCommands> {
  const engine = await testEngine();
  const sessions = createSessions({
    engine,
    environment: commandEnvironment(ownEnvironment()),
    cwd,
    oom: new OomKills(),
    group: () => groups?.take(),
  });
  open.push(sessions);
  return sessions;
}

export interface Ran extends CommandResult {
  stdout: string;
  stderr: string;
  bytes: Buffer;
  /** "exited 0", "timed_out", … */
  what: string;
}

export interface Running {
  command: RunningCommand;
  ended: Promise<Ran>;
  /** Resolves when stdout and stderr together contain it. */
  until(text: string): Promise<void>;
}

export function begin(sessions: SessionCommands, shell: string, more: Record<string, unknown> = {}): Running {
  const request = check(ExecRequest, { id: newUuidV7(), session: "s", shell, ...more });
  const parts: Record<"stdout" | "stderr", Uint8Array[]> = { stdout: [], stderr: [] };
  const waiting: { text: string; resolve: () => void }[] = [];
  const end = Promise.withResolvers<Ran>();
  const all = (): string => Buffer.concat([...parts.stdout, ...parts.stderr]).toString();
  const command = sessions.exec(request, {
    started() {},
    output(stream, data) {
      parts[stream].push(data);
      for (const { text, resolve } of waiting) if (all().includes(text)) resolve();
    },
    ended(result) {
      const bytes = Buffer.concat(parts.stdout);
      const { outcome } = result;
      end.resolve({
        ...result,
        bytes,
        stdout: bytes.toString(),
        stderr: Buffer.concat(parts.stderr).toString(),
        what: outcome.type === "exited" ? `exited ${outcome.code}` : outcome.type,
      });
    },
    fail: end.reject,
  });
  return {
    command,
    ended: end.promise,
    until: (text) =>
      new Promise((resolve) => {
        if (all().includes(text)) resolve();
        else waiting.push({ text, resolve });
      }),
  };
}

export const run = (
  sessions: SessionCommands,
  shell: string,
  more: Record<string, unknown> = {},
): Promise<Ran> => begin(sessions, shell, more).ended;

/** The POSIX-like shells that sessions drive. */
export const SHELLS = ["bash", "dash", "busybox", "zsh"] as const;

/** One test for each shell, in an open session `s`. A shell that is not there fails it in CI, and skips it elsewhere. */
export function inEachShell(
  name: string,
  act: (sessions: SessionCommands, shell: string) => Promise<void>,
  shells: readonly string[] = SHELLS,
): void {
  for (const shell of shells) {
    const missing = Bun.which(shell) === null;
    if (missing && process.env.CI !== "true") test.skip(`${name}: ${shell} is not on this machine`, () => {});
    else
      test(`${name}: ${shell}`, async () => {
        const sessions = await testSessions();
        await sessions.open({ session: "s", shell });
        await act(sessions, shell);
      });
  }
}

/** Waits until the process has ended (or its zombie is all that is there). */
export async function untilGone(pid: number): Promise<void> {
  const deadline = Date.now() + 10_000;
  while (isAlive(pid)) {
    if (Date.now() > deadline) throw new Error(`process ${pid} lives on`);
    await Bun.sleep(5);
  }
}

export function isAlive(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    return !/^[ZX]/.test(stat.slice(stat.lastIndexOf(")") + 2));
  } catch {
    return false;
  }
}

/** Waits until the process runs that program: what a shell has forked is a copy of the shell first, which ignores
 * SIGTERM as an interactive shell does. */
export async function untilRuns(pid: number, program: string): Promise<void> {
  const deadline = Date.now() + 10_000;
  const name = (): string => {
    try {
      return readFileSync(`/proc/${pid}/comm`, "latin1").trim();
    } catch {
      return "";
    }
  };
  while (name() !== program) {
    if (Date.now() > deadline) throw new Error(`process ${pid} runs ${name()}, not ${program}`);
    await Bun.sleep(2);
  }
}

/** Waits until a background job has been made deaf to Ctrl-C by its shell, which it does after the fork, in the child. */
export async function untilIgnoresInterrupt(pid: number): Promise<void> {
  const deadline = Date.now() + 10_000;
  const ignores = (): boolean => {
    const mask = /^SigIgn:\t([0-9a-f]+)$/m.exec(readFileSync(`/proc/${pid}/status`, "latin1"))?.[1];
    return (Number.parseInt(mask?.slice(-1) ?? "0", 16) & 2) !== 0;
  };
  while (!ignores()) {
    if (Date.now() > deadline) throw new Error(`process ${pid} takes interrupts`);
    await Bun.sleep(2);
  }
}
