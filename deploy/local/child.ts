// A child process that is started again whenever it ends, until it is told to stop.
import { closeSync, openSync, readFileSync } from "node:fs";
import { endingWithUs } from "../../broker/server/ending.ts";

export interface ChildOptions {
  argv: string[];
  env: Record<string, string | undefined>;
  /** Both its streams are appended here. */
  logFile: string;
  /** Told of each end that was not asked for. */
  onExit?: (status: string) => void;
}

export interface Child {
  readonly pid: number;
  /** At once; it is started again. */
  kill(): void;
  /** SIGTERM, then after `graceMs` SIGKILL; resolves when it is gone. */
  stop(graceMs: number): Promise<void>;
}

/** First wait before a restart, ms; doubled up to the longest. A child that lived for a minute starts anew. */
const FIRST_BACKOFF_MS = 100;
const LONGEST_BACKOFF_MS = 5_000;
const LIVED_LONG_MS = 60_000;

export function keepRunning(options: ChildOptions): Child {
  let stopping = false;
  let backoffMs = FIRST_BACKOFF_MS;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let process = start();

  function start() {
    const log = openLog(options.logFile);
    const began = Date.now();
    const child = Bun.spawn(endingWithUs(options.argv), {
      env: options.env,
      stdio: ["ignore", log, log],
    });
    if (log !== "ignore") closeSync(log);
    child.exited.then(() => {
      if (stopping) return;
      options.onExit?.(`${child.signalCode ?? `status ${child.exitCode}`}`);
      if (Date.now() - began > LIVED_LONG_MS) backoffMs = FIRST_BACKOFF_MS;
      timer = setTimeout(() => {
        process = start();
      }, backoffMs);
      backoffMs = Math.min(backoffMs * 2, LONGEST_BACKOFF_MS);
    });
    return child;
  }

  return {
    get pid() {
      return process.pid;
    },
    kill() {
      process.kill("SIGKILL");
    },
    async stop(graceMs) {
      stopping = true;
      clearTimeout(timer);
      process.kill("SIGTERM");
      const kill = setTimeout(() => process.kill("SIGKILL"), graceMs);
      await process.exited;
      clearTimeout(kill);
    },
  };
}

/** A disk that takes no log, or a folder that was removed, keeps nothing from running. */
function openLog(file: string): number | "ignore" {
  try {
    return openSync(file, "a", 0o600);
  } catch {
    return "ignore";
  }
}

/** Of a log, what its process said last, without the line by which Bun ends its report of an error. */
export function lastLine(file: string): string {
  const lines = readFileSync(file, "utf8").split("\n");
  return lines.findLast((line) => line.trim() !== "" && !line.startsWith("Bun v")) ?? "its log is empty";
}
