// What quickstart says of a replay: figures in 80 columns, what they mean, and by what outputs differ.
import { counted, duration, shown, table } from "../../sdk/cli/output.ts";
import { percentile } from "../percentile.ts";
import type { ReplayedStep } from "./replay.ts";
import type { Trajectory } from "./trajectory.ts";

export interface Replay {
  sandbox: string;
  trajectory: Trajectory;
  readyMs: number;
  steps: ReplayedStep[];
}

const WIDTH = 80;
const MEANING = [
  "READY: from the burst's start until the sandbox was there (all: the slowest).",
  "P50, P99: half, and 99 of 100, of the commands took at most this, from the call",
  "to the answer. EXIT, OUTPUT: as recorded/compared, of the commands that gave the",
  "recorded result again on a plain Debian 12, too. Not every recording has both.",
].join("\n");

/** All of it, no line wider than 80 columns. */
export function report(replays: readonly Replay[]): string {
  const steps = replays.flatMap((each) => each.steps);
  return [figures(replays, steps), MEANING, trajectories(replays), sources(replays), reasons(steps)].join(
    "\n\n",
  );
}

const ms = (value: number): string => (value < 1000 ? `${value.toFixed(1)} ms` : duration(value));

function figures(replays: readonly Replay[], all: readonly ReplayedStep[]): string {
  const row = (name: string, readyMs: number, steps: readonly ReplayedStep[]) => {
    const times = steps.map((step) => step.tookMs);
    const [p50, p99] = [ms(percentile(times, 0.5)), ms(percentile(times, 0.99))];
    const promised = steps.filter(({ verdict }) => verdict.promised);
    const [exits, outputs] = [agreement(promised, "exit"), agreement(promised, "output")];
    return [name, duration(readyMs), String(steps.length), p50, p99, exits, outputs];
  };
  const rows = replays.map(({ sandbox, readyMs, steps }) => row(sandbox, readyMs, steps));
  rows.push(row("all", Math.max(...replays.map((each) => each.readyMs)), all));
  return table(["=SANDBOX", ">READY", ">COMMANDS", ">P50", ">P99", ">EXIT", ">OUTPUT"], rows, WIDTH);
}

/** "9/10": of those that could be compared. */
function agreement(steps: readonly ReplayedStep[], what: "exit" | "output"): string {
  const compared = steps.filter((step) => step.verdict[what] !== "unknown");
  const agrees = compared.filter((step) => step.verdict[what] === "agrees");
  return `${agrees.length}/${compared.length}`;
}

/** What each sandbox replayed. */
function trajectories(replays: readonly Replay[]): string {
  const lines = replays.map(({ sandbox, trajectory: { agent, task } }) => {
    const line = shown(`${sandbox}  ${agent}: ${task}`);
    return line.length <= WIDTH ? line : `${line.slice(0, WIDTH - 1)}…`;
  });
  return lines.join("\n");
}

/** Whose recordings these are, and where all of that is said. */
function sources(replays: readonly Replay[]): string {
  const named = replays.map(({ trajectory }) => `${trajectory.source_repo} (${trajectory.license})`);
  return Bun.wrapAnsi(
    `Recorded in ${[...new Set(named)].join(", ")}: see deploy/workloads/README.md.`,
    WIDTH,
  );
}

/** How far what should agree does, and the others, and by what both differ. */
function reasons(steps: readonly ReplayedStep[]): string {
  const promised = steps.filter(({ verdict }) => verdict.promised);
  const others = steps.filter(({ verdict }) => !verdict.promised);
  const told = [
    `${counted(promised.length, "command")} gave on a plain Debian 12 what was recorded elsewhere. Here:`,
    ...agreements(promised),
  ];
  if (others.length === 0) return told.join("\n");
  const rest = `The others (${others.length}) gave something else there, or are not recorded whole. Here:`;
  return [...told, rest, ...agreements(others)].join("\n");
}

function agreements(steps: readonly ReplayedStep[]): string[] {
  const counts = new Map<string, number>();
  for (const { why } of steps.map(({ verdict }) => verdict))
    if (why !== undefined) counts.set(why, (counts.get(why) ?? 0) + 1);
  const kinds = [...counts].sort((a, b) => b[1] - a[1]);
  const agreed = `  exit codes agree ${agreement(steps, "exit")}, outputs ${agreement(steps, "output")}`;
  if (kinds.length === 0) return [agreed];
  return [
    `${agreed}; by what differs:`,
    ...kinds.map(([why, count]) => `  ${String(count).padStart(4)}  ${why}`),
  ];
}
