// A replayed step beside its recording: does it agree, and if not, why may it differ?
import type { Outcome } from "../../broker/contract/index.ts";
import type { Step } from "./trajectory.ts";

export interface Replayed {
  outcome: Outcome;
  stdout: Uint8Array;
  stderr: Uint8Array;
}

/** `unknown`: the recording does not say. */
export type Agreement = "agrees" | "differs" | "unknown";

export interface Verdict {
  exit: Agreement;
  output: Agreement;
  /** Why a difference is to be expected; undefined where none was found, or where nothing differs. */
  why?: string;
}

/** What a shell would have said: sandmesh's own endings have no such number. */
function status(outcome: Outcome): number | undefined {
  if (outcome.type === "exited") return outcome.code;
  if (outcome.type === "not_started") return outcome.reason === "no_such_program" ? 127 : 126;
  return undefined;
}

function exitAgreement(step: Step, outcome: Outcome): Agreement {
  const code = status(outcome);
  if (step.observed_exit !== undefined) {
    // Some harnesses recorded every failure as 1; that it fails again is what can be compared.
    if (step.observed_exit === code) return "agrees";
    return step.observed_exit !== 0 && code !== 0 && code !== undefined ? "agrees" : "differs";
  }
  if (step.observed_ok !== undefined) return step.observed_ok === (code === 0) ? "agrees" : "differs";
  return "unknown";
}

function outputAgreement(step: Step, replayed: Replayed): Agreement {
  if (step.observed_output === undefined || step.observed_output_cut !== undefined) return "unknown";
  const out = Buffer.from(replayed.stdout).toString("utf8");
  const err = Buffer.from(replayed.stderr).toString("utf8");
  const wanted = step.observed_output.trimEnd();
  // Harnesses recorded stdout, stderr, or both in either order.
  const candidates = [out, err, out + err, err + out];
  return candidates.some((text) => text.trimEnd() === wanted) ? "agrees" : "differs";
}

/** Reasons that stand in the recording itself, the likeliest first. */
const REASONS: readonly [RegExp, string][] = [
  [
    /\bls\b.*-\w*l|\bstat\b|-ls\b|-printf|-mtime|-mmin|\bdate\b|-newer|\btouch\b/,
    "time stamps: of files and clocks, which are now's",
  ],
  [
    /\bhostname\b|\bip\b|\bifconfig\b|\buname\b|\bnetstat\b|\bping\b|\bhost\b|\bdig\b/,
    "names of host and network: this machine's",
  ],
  [
    /\bps\b|\btop\b|\bpgrep\b|\buptime\b|\bfree\b|\bwho\b|\bw\b|\/proc|\$\$|\bjobs\b|\bpstree\b/,
    "processes and kernel: other numbers, other programs at work",
  ],
  [
    /\bdf\b|\bdu\b|\bmount\b|-size|\bls\b.*-\w*s|\bblkid\b|\blsblk\b/,
    "disks and sizes: of another file system",
  ],
  [
    /\bbash\b|\bversion\b|\bwhich\b|\bcommand -v\b|\bset\b|\bbind\b|\bman\b|\benv\b|\becho \$|\bprintenv\b|\bhistory\b/,
    "programs and settings: those of this machine's image",
  ],
  [
    /\bfind\b|\bls\b|\bgrep\b.*-\w*r|\btar\b|\bzip\b|\bgzip\b|\bxargs\b/,
    "lists of files: another order, and what else the image has",
  ],
  [/\bshuf\b|\brandom\b|\$RANDOM|\bmktemp\b|\burandom\b/i, "chance: random numbers and names"],
];

/** Compares one step. `why` is found from the command, and only where something differs. */
export function compare(step: Step, replayed: Replayed): Verdict {
  const verdict: Verdict = {
    exit: exitAgreement(step, replayed.outcome),
    output: outputAgreement(step, replayed),
  };
  if (verdict.exit !== "differs" && verdict.output !== "differs") return verdict;
  const why = REASONS.find(([pattern]) => pattern.test(step.command))?.[1];
  return why === undefined ? verdict : { ...verdict, why };
}
