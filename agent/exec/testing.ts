// For tests: the engine of this process, and a command run to its end.
import { mkdtempSync, rmdirSync } from "node:fs";
import { ExecRequest, newUuidV7, type Outcome } from "../../broker/contract/index.ts";
import { check } from "../../broker/contract/validate.ts";
import type { CommandResult, RunningCommand } from "../../broker/endpoint/executor.ts";
import { ownFolder } from "../info/cgroup.ts";
import { checkoutNative } from "../native/compile.ts";
import { Engine } from "../native/engine.ts";
import { commandEnvironment, ownEnvironment } from "../process/environment.ts";
import { readText } from "../process/read-text.ts";
import { Commands } from "./exec.ts";
import { Groups } from "./groups.ts";

let engine: Promise<Engine> | undefined;
/** One engine per process: its native half is one. */
export const testEngine = (): Promise<Engine> => (engine ??= Engine.open(checkoutNative()));

export async function testCommands(cwd = "/", groups?: Groups): Promise<Commands> {
  const environment = commandEnvironment(ownEnvironment());
  return new Commands({ engine: await testEngine(), environment, cwd, groups: () => groups });
}

/** A new folder for groups, beside which this process is; undefined where this user may make none. Whoever has it removes it. */
export async function testGroups(): Promise<{ groups: Groups; folder: string } | undefined> {
  const own = ownFolder(readText);
  if (own === undefined) return undefined;
  try {
    const folder = mkdtempSync(`${own}/sandmesh-test-`);
    const engine = await testEngine();
    const groups = Groups.in(folder, (folder) => engine.mayGroup(folder));
    if (groups !== undefined) return { groups, folder };
    rmdirSync(folder);
  } catch {
    // Not ours to make.
  }
  return undefined;
}

export interface Ran extends CommandResult {
  id: string;
  pid: number | undefined;
  stdout: Buffer;
  stderr: Buffer;
  /** Output in the order in which it came. */
  text: string;
  outcome: Outcome;
}

export interface Running {
  id: string;
  command: RunningCommand;
  started: Promise<number>;
  ended: Promise<Ran>;
  /** Output so far. */
  stdout(): Buffer;
  /** Resolves when stdout contains it. */
  until(text: string): Promise<void>;
  onOutput(handle: (data: Uint8Array) => void): void;
}

export function begin(commands: Commands, request: Record<string, unknown>): Running {
  const parsed = check(ExecRequest, { id: newUuidV7(), ...request });
  const parts = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] };
  let pid: number | undefined;
  const waiting: { text: string; resolve: () => void }[] = [];
  let onOutput: (data: Uint8Array) => void = () => {};
  const start = Promise.withResolvers<number>();
  const end = Promise.withResolvers<Ran>();
  const stdout = (): Buffer => Buffer.concat(parts.stdout);
  const command = commands.exec(parsed, {
    started(value) {
      pid = value;
      start.resolve(value);
    },
    output(stream, data) {
      parts[stream].push(data);
      onOutput(data);
      for (const { text, resolve } of waiting) if (stdout().includes(text)) resolve();
    },
    ended(result) {
      const stderr = Buffer.concat(parts.stderr);
      end.resolve({
        ...result,
        id: parsed.id ?? "",
        pid,
        stdout: stdout(),
        stderr,
        text: stdout().toString(),
      });
    },
    fail: end.reject,
  });
  return {
    id: parsed.id ?? "",
    command,
    started: start.promise,
    ended: end.promise,
    stdout,
    until: (text) =>
      new Promise((resolve) => {
        if (stdout().includes(text)) resolve();
        else waiting.push({ text, resolve });
      }),
    onOutput(handle) {
      onOutput = handle;
    },
  };
}

export const run = (commands: Commands, request: Record<string, unknown>): Promise<Ran> =>
  begin(commands, request).ended;

/** Whether a process is there and has not ended. */
export async function alive(pid: number): Promise<boolean> {
  const stat = await Bun.file(`/proc/${pid}/stat`)
    .text()
    .catch(() => "");
  return stat !== "" && !/\) [ZX] /.test(stat);
}

/** Waits for a condition; throws after `deadlineMs`. */
export async function until(
  what: string,
  condition: () => boolean | Promise<boolean>,
  deadlineMs = 10_000,
): Promise<void> {
  const end = Date.now() + deadlineMs;
  while (!(await condition())) {
    if (Date.now() > end) throw new Error(`never came: ${what}`);
    await Bun.sleep(5);
  }
}
