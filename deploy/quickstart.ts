// The body of deploy/quickstart: a mesh of its own, a burst of sandboxes, a recorded trajectory in each at the same
// time, a table, and the proof that nothing is left.
import { join } from "node:path";
import { toSandmeshError } from "../broker/contract/index.ts";
import { counted, duration, green, red, tellByWrites, write } from "../sdk/cli/output.ts";
import { connect, type Mesh } from "../sdk/typescript/mod.ts";
import { sandmeshHome } from "../sdk/typescript/settings.ts";
import { describeLeft, type Left, nothingLeft } from "./local/left.ts";
import { withMesh } from "./local/own.ts";
import { replay } from "./replay/replay.ts";
import { type Replay, report } from "./replay/report.ts";
import { loadTrajectories, type Trajectory } from "./replay/trajectory.ts";

const say = (text: string) => write("stdout", `${text}\n`);

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
  const text = () => `${done}/${counted(total, "command")}`;
  return {
    step(running: number) {
      done += 1;
      show(`${text()}, ${counted(running, "sandbox")} at work`, false);
    },
    end: () => show(text(), true),
  };
}

async function replayAll(mesh: Mesh, chosen: Trajectory[]): Promise<void> {
  const run = mesh.run();
  const began = performance.now();
  await say(`acquiring ${counted(chosen.length, "sandbox")} in one burst`);
  const boxes = await Promise.all(
    chosen.map(async (trajectory) => {
      const box = await run.acquire({ image: "host" });
      return { trajectory, box, readyMs: performance.now() - began };
    }),
  );
  await say(
    `all ready after ${duration(performance.now() - began)}; replaying a recorded trajectory in each`,
  );
  const progress = progressLine(chosen.reduce((sum, each) => sum + each.steps.length, 0));
  let running = boxes.length;
  const replayed = await Promise.all(
    boxes.map(async ({ trajectory, box, readyMs }): Promise<Replay> => {
      const steps = await replay(box, trajectory, () => progress.step(running));
      running -= 1;
      return { sandbox: box.id, trajectory, readyMs, steps };
    }),
  );
  progress.end();
  await say("");
  await say(report(replayed));
  await run.close();
}

async function sayLeft(left: Left): Promise<void> {
  const clean = nothingLeft(left);
  await say("");
  await say(clean ? green(describeLeft(left)) : red(describeLeft(left)));
  if (!clean) process.exitCode = 1;
}

async function main(): Promise<number> {
  const count = Number(process.argv[2] ?? 16);
  if (!Number.isInteger(count) || count < 1 || count > 1000) {
    process.stderr.write("usage: bash deploy/quickstart [NUMBER]   (1 to 1000 sandboxes)\n");
    return 2;
  }
  const home = join(sandmeshHome(), "quickstart");
  const began = performance.now();
  await withMesh({ home, down: sayLeft }, async (address) => {
    await say(`mesh up at ${address.url} after ${duration(performance.now() - began)}`);
    await using mesh = await connect({ url: address.url, credentials: address.credentials });
    await replayAll(mesh, choose(await loadTrajectories(), count));
  });
  return Number(process.exitCode ?? 0);
}

tellByWrites();
try {
  process.exitCode = await main();
} catch (error) {
  process.stderr.write(`quickstart: ${toSandmeshError(error).message}\n`);
  process.exitCode = 1;
}
