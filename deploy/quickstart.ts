// The body of deploy/quickstart: a mesh of its own, a burst of sandboxes, a recorded trajectory in each at the same
// time, a table, and the proof that nothing is left.
import { join } from "node:path";
import { toSandmeshError } from "../broker/contract/index.ts";
import { dim, duration, green, red, table } from "../sdk/cli/output.ts";
import { connect, type Mesh, type Sandbox } from "../sdk/typescript/mod.ts";
import { sandmeshHome } from "../sdk/typescript/settings.ts";
import { describeLeft, down, up } from "./local/up.ts";
import { percentile } from "./percentile.ts";
import { type ReplayedStep, replay } from "./replay/replay.ts";
import { loadTrajectories, type Trajectory } from "./replay/trajectory.ts";

interface Replayed {
  trajectory: Trajectory;
  box: Sandbox;
  readyMs: number;
  steps: ReplayedStep[];
}

const say = (text: string) => process.stdout.write(`${text}\n`);

/** One of each source first, then evenly spread, so that a short run has seen all kinds. */
function choose(all: Trajectory[], count: number): Trajectory[] {
  const rare = all.filter((each) => each.source_repo !== "princeton-nlp/intercode");
  const common = all.filter((each) => each.source_repo === "princeton-nlp/intercode");
  const spread = Array.from(
    { length: count },
    (_, i) => common[Math.floor((i * common.length) / count) % common.length],
  );
  return [...rare, ...spread.filter((each) => each !== undefined)].slice(0, count);
}

/** A line that is drawn over on a terminal, and printed each second elsewhere. */
function progressLine(total: number) {
  let done = 0;
  let lastShown = 0;
  const show = (text: string, force: boolean) => {
    if (process.stderr.isTTY === true) process.stderr.write(`\r\u001b[K  ${text}${force ? "\n" : ""}`);
    else if (force || Date.now() - lastShown > 1000) process.stderr.write(`  ${text}\n`);
    else return;
    lastShown = Date.now();
  };
  const text = (running: number) => `${done}/${total} commands, ${running} sandboxes at work`;
  return {
    step(running: number) {
      done += 1;
      show(text(running), false);
    },
    end: () => show(text(0), true),
  };
}

async function replayAll(mesh: Mesh, chosen: Trajectory[]): Promise<Replayed[]> {
  const run = mesh.run();
  const began = performance.now();
  say(`acquiring ${chosen.length} sandboxes in one burst`);
  const boxes = await Promise.all(
    chosen.map(async (trajectory) => {
      const box = await run.acquire({ image: "host" });
      return { trajectory, box, readyMs: performance.now() - began };
    }),
  );
  say(`all ready after ${duration(performance.now() - began)}; replaying a recorded trajectory in each`);
  const progress = progressLine(chosen.reduce((sum, each) => sum + each.steps.length, 0));
  let running = boxes.length;
  const replayed = await Promise.all(
    boxes.map(async ({ trajectory, box, readyMs }) => {
      const steps = await replay(box, trajectory, () => progress.step(running));
      running -= 1;
      return { trajectory, box, readyMs, steps };
    }),
  );
  progress.end();
  say("");
  say(tableOf(replayed));
  say("");
  say(reasonsOf(replayed));
  await run.close();
  return replayed;
}

/** "9/10": of those whose recording says. */
function agreement(steps: ReplayedStep[], what: "exit" | "output"): string {
  const known = steps.filter((step) => step.verdict[what] !== "unknown");
  const agrees = known.filter((step) => step.verdict[what] === "agrees").length;
  return `${agrees}/${known.length}`;
}

const ms = (value: number): string => `${value.toFixed(1)} ms`;

function tableOf(replayed: Replayed[]): string {
  const row = (name: string, ready: string, steps: ReplayedStep[], what: string) => {
    const times = steps.map((step) => step.tookMs);
    const [p50, p99] = [ms(percentile(times, 0.5)), ms(percentile(times, 0.99))];
    return [
      name,
      ready,
      String(steps.length),
      p50,
      p99,
      agreement(steps, "exit"),
      agreement(steps, "output"),
      what,
    ];
  };
  const rows = replayed.map(({ box, readyMs, steps, trajectory }) =>
    row(box.id, ms(readyMs), steps, dim(`${trajectory.agent}: ${trajectory.task}`.slice(0, 48))),
  );
  const all = replayed.flatMap((each) => each.steps);
  const slowest = Math.max(...replayed.map((each) => each.readyMs));
  rows.push(row("all", ms(slowest), all, ""));
  return table(
    ["SANDBOX", ">READY AFTER", ">COMMANDS", ">P50", ">P99", ">SAME EXIT", ">SAME OUTPUT", "TRAJECTORY"],
    rows,
  );
}

/** Why what differs may differ, with counts. */
function reasonsOf(replayed: Replayed[]): string {
  const differing = replayed
    .flatMap((each) => each.steps)
    .filter(({ verdict }) => verdict.exit === "differs" || verdict.output === "differs");
  if (differing.length === 0) return "every step agrees with its recording";
  const counts = new Map<string, number>();
  for (const { verdict } of differing) {
    const why = verdict.why ?? "another machine (programs, versions, locale) than the recorded one";
    counts.set(why, (counts.get(why) ?? 0) + 1);
  }
  const lines = [...counts]
    .sort((a, b) => b[1] - a[1])
    .map(([why, count]) => `  ${String(count).padStart(3)}  ${why}`);
  return [
    `${differing.length} steps differ from their recording, which was made on another machine; why they may:`,
    ...lines,
  ].join("\n");
}

async function main(): Promise<number> {
  const count = Number(process.argv[2] ?? 16);
  if (!Number.isInteger(count) || count < 1 || count > 1000) {
    process.stderr.write("usage: bash deploy/quickstart [NUMBER]   (1 to 1000 sandboxes)\n");
    return 2;
  }
  const home = join(sandmeshHome(), "quickstart");
  const began = performance.now();
  const address = await up(home);
  say(`mesh up at ${address.url} after ${duration(performance.now() - began)}`);
  try {
    await using mesh = await connect({ url: address.url, credentials: address.credentials });
    await replayAll(mesh, choose(await loadTrajectories(), count));
  } finally {
    const left = await down(home);
    const clean = Object.values(left).every((each) => each === 0);
    say("");
    say(clean ? green(describeLeft(left)) : red(describeLeft(left)));
    if (!clean) process.exitCode = 1;
  }
  return Number(process.exitCode ?? 0);
}

try {
  process.exitCode = await main();
} catch (error) {
  process.stderr.write(`quickstart: ${toSandmeshError(error).message}\n`);
  process.exitCode = 1;
}
