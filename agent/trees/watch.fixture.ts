// `watch.fixture.ts FOLDER [LINE]`: watches it, says how many folders that took, or what refused it; then runs the shell's
// LINE, and says each change until the path `last`.
import { testEngine } from "../exec/testing.ts";
import { kernelWatches } from "./testing.ts";
import { createTrees } from "./trees.ts";

const [, , path = "", line] = process.argv;
const say = (value: unknown): void => console.log(JSON.stringify(value));
const trees = createTrees({ cwd: "/", engine: await testEngine() });
try {
  let { cursor } = await trees.watch({ path, recursive: true, signal: new AbortController().signal });
  say(kernelWatches());
  if (line !== undefined) Bun.spawnSync(["sh", "-c", line]);
  for (let isOver = line === undefined; !isOver; ) {
    const answer = await trees.changes({ path, cursor, waitMs: 10_000 });
    if (answer.overflow) say("overflow");
    for (const change of answer.changes) say(change.path);
    isOver = answer.cursor === cursor || answer.changes.some((change) => change.path.endsWith("last"));
    cursor = answer.cursor;
  }
} catch (error) {
  const { code, reason, message } = error as { code: string; reason: string; message: string };
  say({ code, reason, message });
}
process.exit(0);
