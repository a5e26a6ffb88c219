// The engine's own promises, beside those that agent/exec tests through it.
import { expect, test } from "bun:test";
import { begin, testCommands, testEngine, until } from "../exec/testing.ts";

/** Leaves 50 zombies, says their pids, and keeps them until it is ended. */
const ZOMBIES = `
import os, time
pids = []
for _ in range(50):
    pid = os.fork()
    if pid == 0: os._exit(0)
    pids.append(pid)
for pid in pids: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
print(*pids, flush=True)
time.sleep(60)
`;

test("a watch for a process that has just ended is told every time, or a cancel would wait for its whole grace", async () => {
  const engine = await testEngine();
  const running = begin(await testCommands(), { argv: ["python3", "-c", ZOMBIES] });
  await running.until("\n");
  const pids = running.stdout().toString().trim().split(" ").map(Number);
  let told = 0;
  const gone = (): void => {
    told++;
  };
  const rounds = 200;
  // In short bursts, since a watch that comes while the engine's thread is busy is not in danger.
  for (let round = 0; round < rounds; round++) {
    for (const pid of pids) expect(engine.watch(pid, gone)).toBe(true);
    await Promise.resolve();
  }
  running.command.cancel();
  await running.ended;
  await until("each watch was told", () => told === rounds * pids.length);
});
