// From how the leader ended, and what sandmesh did to it, to the outcome. Pure.
import { type Outcome, signalName } from "../../broker/contract/index.ts";
import { SIGKILL } from "./signals.ts";

/** Why sandmesh ended a command. */
export type Ending =
  | { why: "timeout"; afterMs: number }
  | { why: "cancel" }
  | { why: "as"; outcome: Outcome };

export interface EndedTree {
  /** How many of its processes were signalled. */
  killed: number;
  /** Whether SIGKILL was needed. */
  hard: boolean;
}

/** `status` as wait(2) gives it; `oom`: whether its SIGKILL was the kernel's, for memory. */
export function naturalOutcome(
  status: number,
  oom: () => { limitBytes: number | undefined } | undefined,
): Outcome {
  const signal = status & 0x7f;
  if (signal === 0) return { type: "exited", code: (status >> 8) & 0xff };
  const killed = signal === SIGKILL ? oom() : undefined;
  if (killed !== undefined)
    return killed.limitBytes === undefined
      ? { type: "oom_killed" }
      : { type: "oom_killed", limit_bytes: killed.limitBytes };
  return { type: "signaled", signal: signalName(signal), core_dumped: (status & 0x80) !== 0 };
}

/** `killed`: how many of its processes were signalled; `signal`: the hardest that they got. */
export function endedOutcome(ending: Ending, killed: number, signal: string): Outcome {
  switch (ending.why) {
    case "timeout":
      return { type: "timed_out", after_ms: ending.afterMs, killed, signal };
    case "cancel":
      return { type: "canceled", killed, signal };
    case "as":
      return ending.outcome;
  }
}
