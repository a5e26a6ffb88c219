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

const agrees = { promised: true, exit: "agrees", output: "agrees" } as const;
const differs = { promised: true, exit: "agrees", output: "differs", why: "order: another one" } as const;
const mixed = (...verdicts: Replay["steps"][number]["verdict"][]): Replay[] =>
  replays(1, agrees).map((each) => ({
    ...each,
    steps: each.steps
      .slice(0, verdicts.length)
      .map((step, at) => ({ ...step, verdict: verdicts[at] ?? agrees })),
  }));

test("no line is wider than 80 columns, with a thousand sandboxes, slow ones and long names", () => {
  const all = replays(1000, differs).concat(replays(1000, { ...differs, promised: false }));
  const text = report(all);
  expect(text.split("\n").filter((line) => Bun.stringWidth(line) > 80)).toEqual([]);
  expect(text).toMatch(/^all .* 40000\/40000 +0\/40000$/m);
  expect(text).toContain("40000  order: another one");
});

test("what differs on a plain Debian, too, is not among what should agree, and is told by itself", () => {
  const text = report(mixed(agrees, agrees, { ...differs, promised: false }));
  expect(text).toMatch(/^all .* 2\/2 +2\/2$/m);
  expect(text).toEndWith(`
2 commands gave on a plain Debian 12 what was recorded elsewhere. Here:
  exit codes agree 2/2, outputs 2/2
The others (1) gave something else there, or are not recorded whole. Here:
  exit codes agree 1/1, outputs 0/1; by what differs:
     1  order: another one`);
});

test("what should agree and does not is told, with its kind", () => {
  const text = report(mixed(agrees, differs));
  expect(text).toMatch(/^all .* 2\/2 +1\/2$/m);
  expect(text).toEndWith(
    "\n  exit codes agree 2/2, outputs 1/2; by what differs:\n     1  order: another one",
  );
});

test("whose recordings were replayed, and their licences, are told once each", async () => {
  const [one] = replays(1, agrees);
  if (one === undefined) throw new Error("there is no replay");
  const all = (await loadTrajectories()).map((each) => ({ ...one, trajectory: each }));
  const told = report(all).replaceAll("\n", " ");
  const licences = [
    "NVIDIA-NeMo/Gym (Apache-2.0)",
    "lieexxli/harbor (Apache-2.0)",
    "princeton-nlp/intercode (MIT)",
  ];
  for (const licence of licences) expect(told.split(licence).length).toBe(2);
  expect(told).toContain("deploy/workloads/README.md");
});

test("what was not recorded is not among what was compared, and one command is no plural", () => {
  const text = report(mixed({ ...agrees, exit: "unknown" }));
  expect(text).toMatch(/^all .* 0\/0 +1\/1$/m);
  expect(text).toContain("\n1 command gave ");
});
