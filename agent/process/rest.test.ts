// When the daemon may sleep, on a clock of the test's: too early, and a timer is late; never, and it wakes each second.
import { expect, test } from "bun:test";
import { type Resting, restWhenIdle } from "./rest.ts";

/** A loop in which nothing happens but what the test says; a rest takes all of its time, unless `wakeAfterMs`. */
function idle(more: Partial<Resting> = {}) {
  const state = { ms: 0, requests: 0, connected: true, timerAtMs: Number.POSITIVE_INFINITY };
  const did: string[] = [];
  const queue: { at: number; run: () => void }[] = [];
  restWhenIdle({
    timers: { nextInMs: () => Math.max(0, state.timerAtMs - state.ms) },
    rest: (maxMs) => {
      did.push(`${state.ms}: rest ${maxMs}`);
      state.ms += maxMs;
      return true;
    },
    shrink: () => did.push(`${state.ms}: shrink`),
    requests: () => state.requests,
    connected: () => state.connected,
    now: () => state.ms,
    later: (run, ms) => queue.push({ at: state.ms + ms, run }),
    ...more,
  });
  return {
    state,
    did,
    /** The loop's next look. */
    look() {
      const next = queue.shift();
      if (next === undefined) throw new Error("it looks no more");
      state.ms = Math.max(state.ms, next.at);
      next.run();
    },
    over: () => queue.length === 0,
  };
}

test("it rests until its next timer, and again after it, and lets go of memory once a minute has passed", () => {
  const { state, did, look } = idle();
  state.timerAtMs = 15_000;
  look();
  state.timerAtMs = 500_000;
  for (let i = 0; i < 3; i++) look();
  expect(did).toEqual(["1000: rest 14000", "15050: rest 44950", "60050: shrink", "61050: rest 438950"]);
});

test("after a request it waits for quiet, and lets go of memory once more", () => {
  const { state, did, look } = idle();
  state.timerAtMs = 100_000;
  look();
  look();
  state.requests++;
  look();
  expect(did).toEqual(["1000: rest 59000", "60050: shrink"]);
  const at = state.ms;
  look();
  expect(did.slice(2)).toEqual([`${at + 1000}: rest ${100_000 - at - 1000}`]);
  state.timerAtMs = 1_000_000;
  look();
  look();
  expect(did.slice(3).filter((what) => what.includes("shrink"))).toHaveLength(1);
});

test("a timer that is due soon is left to the loop", () => {
  const { state, did, look } = idle();
  state.timerAtMs = 1_080;
  look();
  expect(did).toEqual([]);
});

test("it does not rest while it has no connection, nor where it cannot", () => {
  const { state, did, look } = idle();
  state.connected = false;
  look();
  look();
  expect(did).toEqual([]);
  state.connected = true;
  look();
  expect(did).toHaveLength(1);
  const cannot = idle({ rest: () => false });
  cannot.look();
  expect(cannot.over()).toBe(true);
});
