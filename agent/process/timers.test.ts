// A timer that is not seen goes off too late by a rest; one that is seen for ever lets the daemon never rest.
import { expect, test } from "bun:test";
import { followTimers } from "./timers.ts";

const { setTimeout, setInterval, setImmediate, clearTimeout, clearInterval, clearImmediate } = globalThis;

function followed() {
  const of = { setTimeout, setInterval, setImmediate, clearTimeout, clearInterval, clearImmediate };
  const clock = { ms: 1000 };
  const timers = followTimers(of, () => clock.ms);
  return { of, clock, next: () => timers.nextInMs() };
}

test("the next of several timers counts, until it has gone off or is taken back", async () => {
  const { of, clock, next } = followed();
  expect(next()).toBe(Number.POSITIVE_INFINITY);
  const late = of.setTimeout(() => {}, 60_000);
  const { promise, resolve } = Promise.withResolvers<string>();
  of.setTimeout(resolve, 5, "given");
  expect(next()).toBe(5);
  clock.ms += 7;
  expect(next()).toBe(0);
  expect(await promise).toBe("given");
  expect(next()).toBe(60_000 - 7);
  of.clearTimeout(late);
  expect(next()).toBe(Number.POSITIVE_INFINITY);
});

test("an interval is due again after each time", async () => {
  const { of, clock, next } = followed();
  const { promise, resolve } = Promise.withResolvers<void>();
  const every = of.setInterval(() => {
    clock.ms += 2;
    resolve();
  }, 3);
  expect(next()).toBe(3);
  await promise;
  expect(next()).toBe(1);
  of.clearInterval(every);
  expect(next()).toBe(Number.POSITIVE_INFINITY);
});

test("what is to run at once is due at once", async () => {
  const { of, next } = followed();
  const { promise, resolve } = Promise.withResolvers<string>();
  of.setImmediate(resolve, "given");
  const other = of.setImmediate(() => {});
  expect(next()).toBe(0);
  of.clearImmediate(other);
  expect(next()).toBe(0);
  expect(await promise).toBe("given");
  expect(next()).toBe(Number.POSITIVE_INFINITY);
});
