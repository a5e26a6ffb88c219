// What quickstart prints: whole in 80 columns, whatever is in it.
import { expect, test } from "bun:test";
import { type Replay, report } from "./report.ts";
import { loadTrajectories } from "./trajectory.ts";

const [trajectory] = await loadTrajectories();

function replays(count: number, verdict: Replay["steps"][number]["verdict"]): Replay[] {
  if (trajectory === undefined) throw new Error("there are no trajectories");
  const [first] = trajectory.steps;
  if (first === undefined) throw new Error("it has no steps");
  const steps = Array.from({ length: 40 }, (_, i) => ({ step: first, verdict, tookMs: i * 1500 }));
  const long = { ...trajectory, task: "a task with a very long name ".repeat(9) };
  return Array.from({ length: count }, (_, i) => ({
    sandbox: `sb-${String(i).padStart(13, "0")}`,
    trajectory: long,
    readyMs: 54_321.5,
    steps,
  }));
}

test("no line is wider than 80 columns, with a thousand sandboxes, slow ones and long names", () => {
  const text = report(replays(1000, { exit: "agrees", output: "differs", why: "chance: random numbers" }));
  expect(text.split("\n").filter((line) => Bun.stringWidth(line) > 80)).toEqual([]);
  expect(text).toMatch(/^all .* 40000\/40000 +0\/40000$/m);
  expect(text).toContain("40000  chance: random numbers");
});

test("what was not recorded is not among what was compared, and one command is no plural", () => {
  const [only] = replays(1, { exit: "unknown", output: "differs" });
  if (only === undefined) throw new Error("there is one");
  const text = report([{ ...only, steps: only.steps.slice(0, 1) }]);
  expect(text).toMatch(/^all .* 0\/0 +0\/1$/m);
  expect(text).toContain("\n1 command differed");
});

test("where all agrees no difference is spoken of", () => {
  const text = report(replays(2, { exit: "agrees", output: "agrees" }));
  expect(text).toEndWith("\nExit codes agree 80/80, outputs 80/80: as recorded.");
  expect(text).not.toContain("differ");
});
