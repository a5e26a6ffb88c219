// For tests: sessions of this process' engine, gone after each test, and commands run to their end in them.
import { afterEach } from "bun:test";
import { ExecRequest, newUuidV7 } from "../../broker/contract/index.ts";
import { check } from "../../broker/contract/validate.ts";
import type { CommandResult, RunningCommand } from "../../broker/endpoint/executor.ts";
import { testEngine } from "../exec/testing.ts";
import { commandEnvironment, ownEnvironment } from "../process/environment.ts";
import { createSessions, type SessionCommands } from "./sessions.ts";

const open: SessionCommands[] = [];
afterEach(async () => {
  for (const sessions of open.splice(0)) await sessions.closeAll(0);
});

export async function testSessions(cwd = "/"): Promise<SessionCommands> {
  const engine = await testEngine();
  const sessions = createSessions({ engine, environment: commandEnvironment(ownEnvironment()), cwd });
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

export const run = (sessions: SessionCommands, shell: string, more: Record<string, unknown> = {}): Promise<Ran> =>
  begin(sessions, shell, more).ended;
