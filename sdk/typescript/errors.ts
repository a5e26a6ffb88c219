// Errors that only the SDK throws; all others are the contract's.
import { type Outcome, outcomeSentence, SandmeshError } from "../../broker/contract/index.ts";
import type { ExecResult } from "./command/result.ts";

/** Nothing says which mesh to connect to, or what says it cannot be read. */
export class NoMeshError extends SandmeshError {
  readonly code = "no_mesh";
  readonly retryable = false;
}

/** Thrown by `check: true` and `orThrow()`: the command ran, and did not exit with 0. `result` has all of it. */
export class CommandFailedError extends SandmeshError {
  readonly code = "command_failed";
  readonly retryable = false;
  readonly result: ExecResult;

  constructor(result: ExecResult, sandbox: string) {
    const said = lastLine(result.stderr.text) ?? lastLine(result.stdout.text);
    super(`${outcomeSentence(result.outcome)}${said === undefined ? "" : `: ${said}`}`, {
      sandbox,
      started: result.outcome.type === "not_started" ? "no" : "yes",
    });
    this.result = result;
  }

  get outcome(): Outcome {
    return this.result.outcome;
  }
}

/** The last line that is not empty, cut to what a log line bears. */
function lastLine(text: string): string | undefined {
  return text.trimEnd().split("\n").at(-1)?.slice(0, 200) || undefined;
}
