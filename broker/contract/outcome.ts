// Outcomes: what a command did. Loss of the infrastructure is never an outcome; that is an error (errors.ts).
import * as v from "valibot";
import { signalNumber } from "./signals.ts";

/** Why a command was not started. It did not run, and sending it again unchanged fails again. */
export const NOT_STARTED_REASONS = [
  "no_such_program",
  "not_executable",
  "exec_format",
  "no_such_cwd",
  "no_such_user",
  "no_shell",
  "permission",
  "argument_list_too_long",
  "out_of_memory",
  "out_of_pids",
  "out_of_files",
  "connect_failed",
  "listen_failed",
] as const;

const Ms = v.pipe(v.number(), v.integer(), v.minValue(0));

export const Outcome = v.variant("type", [
  v.object({
    type: v.literal("exited"),
    code: v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(255)),
  }),
  v.object({
    type: v.literal("signaled"),
    signal: v.pipe(v.string(), v.description("Name, such as SIGSEGV; SIGRTMIN+3 for real-time signals")),
    core_dumped: v.boolean(),
  }),
  v.object({
    type: v.literal("timed_out"),
    after_ms: v.pipe(Ms, v.description("The limit that was passed")),
    killed: v.pipe(Ms, v.description("How many processes were ended for it")),
    signal: v.pipe(
      v.string(),
      v.description("What ended the command itself: SIGTERM, or SIGKILL after the grace"),
    ),
  }),
  v.object({ type: v.literal("canceled"), killed: Ms, signal: v.string() }),
  v.object({ type: v.literal("oom_killed"), limit_bytes: v.optional(Ms) }),
  v.object({
    type: v.literal("output_limit"),
    stream: v.picklist(["stdout", "stderr"]),
    limit_bytes: Ms,
  }),
  v.object({ type: v.literal("not_started"), reason: v.picklist(NOT_STARTED_REASONS), message: v.string() }),
]);

/**
 * What a command did:
 * - `exited`: by itself, with that code (0–255).
 * - `signaled`: ended by a signal that sandmesh did not send. Exit code 137 is `exited`, SIGKILL is `signaled`.
 * - `timed_out`, `canceled`: ended by sandmesh, with its whole process tree.
 * - `oom_killed`: by the kernel, for the sandbox's memory limit.
 * - `output_limit`: ended since it wrote more than `keep: "fail"` allows.
 * - `not_started`: the program could not be run at all.
 */
export type Outcome = v.InferOutput<typeof Outcome>;

/** One line for people: "exited 0", "signaled SIGKILL", "timed out after 2000 ms (3 processes ended)". */
export function describeOutcome(outcome: Outcome): string {
  switch (outcome.type) {
    case "exited":
      return `exited ${outcome.code}`;
    case "signaled":
      return `signaled ${outcome.signal}${outcome.core_dumped ? " (core dumped)" : ""}`;
    case "timed_out":
      return `timed out after ${outcome.after_ms} ms (${ended(outcome.killed)})`;
    case "canceled":
      return `canceled (${ended(outcome.killed)})`;
    case "oom_killed":
      return "killed: out of memory";
    case "output_limit":
      return `ended: ${outcome.stream} passed ${outcome.limit_bytes} bytes`;
    case "not_started":
      return `not started: ${outcome.message}`;
    default:
      return assertNever(outcome);
  }
}

const ended = (processes: number): string =>
  processes === 1 ? "1 process ended" : `${processes} processes ended`;

/** The same as a sentence: "the command exited 1", "the command was not started: …". */
export function outcomeSentence(outcome: Outcome): string {
  const { type } = outcome;
  if (type === "signaled") {
    return `the command was ended by ${outcome.signal}${outcome.core_dumped ? " (core dumped)" : ""}`;
  }
  return `the command ${type === "exited" || type === "timed_out" ? "" : "was "}${describeOutcome(outcome)}`;
}

/** The exit status that a shell would report, for command lines and logs: 128 + signal number, 124 for a time-out
 * (as timeout(1)), 126 and 127 for what could not be run. Programs should look at the outcome instead. */
export function shellStatus(outcome: Outcome): number {
  switch (outcome.type) {
    case "exited":
      return outcome.code;
    case "signaled":
      return 128 + (signalNumber(outcome.signal) ?? 0);
    case "timed_out":
      return 124;
    case "canceled":
      return 130;
    case "oom_killed":
    case "output_limit":
      return 137;
    case "not_started":
      return outcome.reason === "no_such_program" ? 127 : 126;
    default:
      return assertNever(outcome);
  }
}

/** For the end of a switch over a union: the compiler refuses it where a case is missing. */
export function assertNever(value: never): never {
  throw new Error(`unexpected ${JSON.stringify(value)}`);
}
