// A replayed step beside its recording: does it agree, should it, and if not, what differs?
import type { Outcome } from "../../broker/contract/index.ts";
import { describeDifference } from "./difference.ts";
import type { Step } from "./trajectory.ts";

export interface Replayed {
  outcome: Outcome;
  stdout: Uint8Array;
  stderr: Uint8Array;
}

/** `unknown`: the recording does not say. */
export type Agreement = "agrees" | "differs" | "unknown";

export interface Verdict {
  /** The recorded command gave the same again on a plain Debian 12, so that it should here; of others nothing follows. */
  promised: boolean;
  exit: Agreement;
  output: Agreement;
  /** What kind of difference it is, where there is one. */
  why?: string;
}

/** What a shell would have said: sandmesh's own endings have no such number. */
function status(outcome: Outcome): number | undefined {
  if (outcome.type === "exited") return outcome.code;
  if (outcome.type === "not_started") return outcome.reason === "no_such_program" ? 127 : 126;
  return undefined;
}

function exitAgreement(step: Step, outcome: Outcome): Agreement {
  // The failure is then the harness's: it could not run the command, or not read what it wrote.
  if (step.observed_note !== undefined) return "unknown";
  const code = status(outcome);
  if (step.observed_exit !== undefined) return step.observed_exit === code ? "agrees" : "differs";
  if (step.observed_ok === undefined) return "unknown";
  // Of a failure some harnesses recorded no number: that it fails again is what can be compared.
  return code !== undefined && step.observed_ok === (code === 0) ? "agrees" : "differs";
}

function outputAgreement(step: Step, replayed: Replayed): Agreement {
  if (step.observed_output === undefined || step.observed_output_cut !== undefined) return "unknown";
  const wanted = step.observed_output.trimEnd();
  return orders(replayed).some((text) => text.trimEnd() === wanted) ? "agrees" : "differs";
}

/** Harnesses recorded stdout, stderr, or both in either order. */
function orders({ stdout, stderr }: Replayed): string[] {
  const [out, err] = [Buffer.from(stdout).toString("utf8"), Buffer.from(stderr).toString("utf8")];
  return [out, err, out + err, err + out];
}

/** Compares one step. `why` only where something differs. */
export function compare(step: Step, replayed: Replayed): Verdict {
  const promised = step.observed_same === true;
  const exit = exitAgreement(step, replayed.outcome);
  const output = outputAgreement(step, replayed);
  if (output === "differs")
    return { promised, exit, output, why: describeDifference(step.observed_output ?? "", orders(replayed)) };
  return { promised, exit, output, ...(exit === "differs" && { why: EXIT_ALONE }) };
}

const EXIT_ALONE = "the exit code alone";
