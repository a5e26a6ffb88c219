// Ending a tree that forks as fast as it is killed. Of real processes no test could say how fast they are to fork, so these
// are none; `ending.test.ts` and `test/chaos/hostile-commands.test.ts` have real ones.
import { afterEach, expect, spyOn, test } from "bun:test";
import { SIGKILL, SIGSTOP } from "./signals.ts";
import { endTree } from "./tree.ts";

/** So many processes there may be at once. */
const LIMIT = 500;
const FIRST_PID = 1 << 23;

let spy: { mockRestore(): void } | undefined;
afterEach(() => spy?.mockRestore());

/** A bomb: whatever becomes of one of its processes, those that run fork until there are as many as there may be. */
function bomb() {
  const running = new Set<number>();
  const stopped = new Set<number>();
  let next = FIRST_PID;
  let looks = 0;
  const fork = () => {
    while (running.size > 0 && running.size + stopped.size < LIMIT) running.add(next++);
  };
  running.add(next++);
  fork();
  spy = spyOn(process, "kill").mockImplementation((pid, signal) => {
    if (signal === SIGSTOP && running.delete(pid)) stopped.add(pid);
    if (signal === SIGKILL) {
      running.delete(pid);
      stopped.delete(pid);
    }
    fork();
    return true;
  });
  return {
    alive: () => [...running, ...stopped],
    find: () => {
      looks += 1;
      return Promise.resolve([...running, ...stopped]);
    },
    looks: () => looks,
  };
}

test("a bomb that forks whenever one of it is killed ends, after a few looks at all processes", async () => {
  const { alive, find, looks } = bomb();
  const { killed } = await endTree({ find, watch: () => false, graceMs: 0 });
  expect(alive()).toEqual([]);
  expect(killed).toBeGreaterThanOrEqual(LIMIT);
  expect(looks()).toBeLessThan(10);
});
