// Nearest rank: a percentile is one of the values, and at least that share of them is not above it.
import { expect, test } from "bun:test";
import { percentile } from "./percentile.ts";

const upTo = (n: number): number[] => Array.from({ length: n }, (_, i) => n - i);

test("half of an even number of values are at most its median", () => {
  expect(percentile([2, 1], 0.5)).toBe(1);
  expect(percentile([3, 1, 2], 0.5)).toBe(2);
  expect(percentile(upTo(100), 0.5)).toBe(50);
});

test("of a hundred values the 99th is not the largest, and the 100th is", () => {
  expect(percentile(upTo(100), 0.99)).toBe(99);
  expect(percentile(upTo(100), 1)).toBe(100);
});

test("of one value each is that value, the least is the first, and of none there is none", () => {
  expect([0, 0.5, 0.99, 1].map((share) => percentile([7], share))).toEqual([7, 7, 7, 7]);
  expect(percentile(upTo(100), 0)).toBe(1);
  expect(percentile([], 0.5)).toBeNaN();
});

test("a share that floating point makes a little more does not make it the next value", () => {
  expect(100 * 0.55).toBeGreaterThan(55);
  for (let percent = 1; percent <= 100; percent++) expect(percentile(upTo(100), percent / 100)).toBe(percent);
});
