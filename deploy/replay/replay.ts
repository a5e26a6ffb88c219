// Replays a recorded trajectory in a sandbox, step by step, and compares.
import { type ExecResult, IncompleteCommandError, type Sandbox } from "../../sdk/typescript/mod.ts";
import { compare, type Replayed, type Verdict } from "./compare.ts";
import { fixtureTar } from "./fixture.ts";
import { loadFixture, type Step, type Trajectory } from "./trajectory.ts";

/** No recorded step took more than 5 s where it was recorded. */
const STEP_TIMEOUT_MS = 60_000;
/** What the recordings ran with. */
export const RECORDED_ENV = { HOME: "/root", LANG: "C.UTF-8" };

export interface ReplayedStep {
  step: Step;
  verdict: Verdict;
  /** At the client: encoding, the wire, the command, decoding. */
  tookMs: number;
}

/** Puts the trajectory's files in place and runs its steps. `onStep` is called after each. */
export async function replay(
  box: Sandbox,
  trajectory: Trajectory,
  onStep: (done: ReplayedStep) => void = () => {},
  signal?: AbortSignal,
): Promise<ReplayedStep[]> {
  await box.files.mkdir(trajectory.cwd);
  await putFiles(box, trajectory);
  const run = await runnerFor(box, trajectory, signal);
  const done: ReplayedStep[] = [];
  for (const step of trajectory.steps) {
    const began = performance.now();
    const replayed = await run(step).then(
      ({ outcome, stdout, stderr }) => ({ outcome, stdout: stdout.bytes, stderr: stderr.bytes }),
      asShellsSay,
    );
    const tookMs = performance.now() - began;
    const finished = { step, tookMs, verdict: compare(step, replayed) };
    done.push(finished);
    onStep(finished);
  }
  return done;
}

/** The files that it begins with; those that have no time of their own are of `now`. */
export async function putFiles(box: Sandbox, { fixture }: Trajectory, now?: Date): Promise<void> {
  if (fixture !== undefined) await box.files.unpack("/", [await fixtureTar(await loadFixture(fixture), now)]);
}

/** A command that ends in the middle is refused before it runs; a shell would have called it a syntax error. */
function asShellsSay(error: unknown): Replayed {
  if (!(error instanceof IncompleteCommandError)) throw error;
  const nothing = new Uint8Array(0);
  return { outcome: { type: "exited", code: 2 }, stdout: nothing, stderr: Buffer.from(error.message) };
}

/** Each step in a shell of its own, or all in one, as it was recorded. */
async function runnerFor(
  box: Sandbox,
  trajectory: Trajectory,
  signal: AbortSignal | undefined,
): Promise<(step: Step) => Promise<ExecResult>> {
  const options = { timeout: STEP_TIMEOUT_MS, ...(signal !== undefined && { signal }) };
  if (trajectory.oneShell) {
    const session = await box.shell({ shell: "bash", cwd: trajectory.cwd, env: RECORDED_ENV });
    return (step) => session.exec(step.command, options);
  }
  return (step) =>
    box.exec(step.argv ?? ["/bin/bash", "-c", step.command], {
      ...options,
      cwd: step.cwd ?? trajectory.cwd,
      env: RECORDED_ENV,
    });
}
