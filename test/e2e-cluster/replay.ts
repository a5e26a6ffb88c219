// Recorded commands in images that they were not recorded in: by another shell, or by none.
import { compare, type Verdict } from "../../deploy/replay/compare.ts";
import { putFiles, RECORDED_ENV } from "../../deploy/replay/replay.ts";
import type { Step, Trajectory } from "../../deploy/replay/trajectory.ts";
import type { ExecResult, Sandbox } from "../../sdk/typescript/mod.ts";
import { IMAGES } from "../images/kubernetes.ts";

export interface Replayed {
  step: Step;
  result: ExecResult;
  verdict: Verdict;
}

/** Those with a shell for each command, at the root folder: with files of their own, or without. */
export const plain = (all: readonly Trajectory[], withFiles: boolean): Trajectory[] =>
  all.filter(
    ({ oneShell, cwd, fixture }) => !oneShell && cwd === "/" && (fixture !== undefined) === withFiles,
  );

export async function replayBy(shell: string, box: Sandbox, trajectory: Trajectory): Promise<Replayed[]> {
  await putFiles(box, trajectory);
  const done: Replayed[] = [];
  for (const step of trajectory.steps) {
    const argv = step.argv ?? [shell, "-c", step.command];
    const cwd = step.cwd ?? trajectory.cwd;
    const result = await box.exec(argv, { cwd, env: RECORDED_ENV, timeout: "60s" });
    const { outcome, stdout, stderr } = result;
    const verdict = compare(step, { outcome, stdout: stdout.bytes, stderr: stderr.bytes });
    done.push({ step, result, verdict });
  }
  return done;
}

/** Images of which each has one program and no shell, and how that program says "on". */
export const WITHOUT_SHELL = [
  [IMAGES.scratch, ["/echo", "on"]],
  [IMAGES.muslProgram, ["/say", "on"]],
] as const;

/** In a word what became of each step. */
export async function outcomesOf(shell: string, box: Sandbox, trajectory: Trajectory): Promise<string[]> {
  const replayed = await replayBy(shell, box, trajectory);
  return replayed.map(({ result: { outcome } }) =>
    outcome.type === "not_started" ? outcome.reason : outcome.type,
  );
}

/** The part of the steps whose exit differs from the recorded one, and which they are. */
export function differing(all: readonly Replayed[]): { share: number; which: string } {
  const told = all.filter(({ verdict }) => verdict.exit !== "unknown");
  const differs = told.filter(({ verdict }) => verdict.exit === "differs");
  const which = differs.map(({ step }) => step.command).join("\n");
  return { share: differs.length / told.length, which };
}
