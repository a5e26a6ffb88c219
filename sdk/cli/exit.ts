// Exit codes of the `sandmesh` program.
import { constants } from "node:os";
import { type Outcome, shellStatus } from "../../broker/contract/index.ts";

/**
 * For `run`, `exec` and `shell`: the command's own 0–255; 128 + n where a signal ended it; 124 on its time limit, 130
 * when canceled, 126 and 127 where it could not be run. sandmesh's own failure, or wrong usage, is 125, with one line `sandmesh: CODE:
 * message` on stderr. A command can use those numbers too: with `--outcome FILE` (and with `--json`) the typed outcome
 * tells them apart.
 *
 * For all else: 0 done, 1 failed, 2 wrong usage, 3 no such sandbox or run, or no mesh to end, 130 canceled. 141 (128 + SIGPIPE) where the reader of our output has gone.
 */
export const EXIT = {
  ok: 0,
  failed: 1,
  usage: 2,
  notFound: 3,
  sandmeshFailed: 125,
  canceled: 130,
  brokenPipe: 141,
} as const;

export function signalNumber(name: string): number {
  const signals: Record<string, number> = constants.signals;
  const known = signals[name];
  if (known !== undefined) return known;
  const realTime = /^SIGRTMIN\+(\d+)$/.exec(name);
  return realTime ? 34 + Number(realTime[1]) : 0;
}

export const exitCodeOf = (outcome: Outcome): number => shellStatus(outcome, signalNumber);
