import { expect, test } from "bun:test";
import { getEventListeners } from "node:events";
import { onAbort, whenAborted } from "./on-abort.ts";

const listeners = (signal: AbortSignal) => getEventListeners(signal, "abort").length;

test("a signal has one listener for all that wait with it, and none when nobody does", () => {
  const { signal } = new AbortController();
  const ends = Array.from({ length: 20 }, () => onAbort(signal, () => undefined));
  expect(listeners(signal)).toBe(1);
  for (const end of ends) end();
  expect(listeners(signal)).toBe(0);
  onAbort(signal, () => undefined);
  for (const end of ends) end();
  expect(listeners(signal)).toBe(1);
});

test("an abort is told to who waits, in their order, and not to one that a former took back", () => {
  const control = new AbortController();
  const told: string[] = [];
  let endThird: () => void = () => undefined;
  onAbort(control.signal, () => told.push("first"));
  onAbort(control.signal, () => {
    told.push("second");
    endThird();
    onAbort(control.signal, () => told.push("too late"));
  });
  endThird = onAbort(control.signal, () => told.push("third"));
  onAbort(control.signal, () => told.push("fourth"));
  control.abort();
  control.abort();
  expect(told).toEqual(["first", "second", "fourth"]);
  expect(listeners(control.signal)).toBe(0);
});

test("a signal that has aborted already is heard by who asks for that, once, and by no other", () => {
  const told: string[] = [];
  const { signal } = new AbortController();
  whenAborted(AbortSignal.abort(), () => told.push("at once"))();
  onAbort(AbortSignal.abort(), () => told.push("never"));
  whenAborted(signal, () => told.push("not yet"))();
  whenAborted(undefined, () => told.push("no signal"));
  expect(told).toEqual(["at once"]);
  expect(listeners(signal)).toBe(0);
});
