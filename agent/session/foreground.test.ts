import { expect, test } from "bun:test";
import { lastPid, momentAgo, startedAfter, startTicks } from "./foreground.ts";

test("a background job of the command before is not taken for this one's, though the kernel tells starts to 10 ms only", () => {
  const moment = { ticks: 1000, lastPid: 500 };
  expect(startedAfter(moment, 499, 1000)).toBe(false);
  expect(startedAfter(moment, 499, 1001)).toBe(false);
  expect(startedAfter(moment, 501, 1000)).toBe(true);
  expect(startedAfter(moment, 501, 999)).toBe(true);
  expect(startedAfter(moment, 501, 998)).toBe(false);
  // Long after it, the pids may have started anew.
  expect(startedAfter(moment, 7, 5000)).toBe(true);
  expect(startedAfter(moment, 501, undefined)).toBe(false);
});

test("moments and starts are on one clock", async () => {
  const before = lastPid();
  const began = performance.now();
  const child = Bun.spawn(["sleep", "60"]);
  try {
    const ticks = startTicks(child.pid);
    expect(startedAfter(momentAgo(performance.now() - began, before), child.pid, ticks)).toBe(true);
    expect(startedAfter(momentAgo(-1000, child.pid), child.pid, ticks)).toBe(false);
  } finally {
    child.kill("SIGKILL");
    await child.exited;
  }
  expect(startTicks(2 ** 30)).toBeUndefined();
});
