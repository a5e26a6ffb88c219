import { expect, test } from "bun:test";
import { creditOf } from "./command/request.ts";
import { bytes, milliseconds } from "./units.ts";

test("a duration without a unit, or with an unknown one, is refused rather than guessed", () => {
  expect(["500ms", "30s", "1.5m", "1h", 250, 0.2].map((value) => milliseconds(value, "timeout"))).toEqual([
    500, 30_000, 90_000, 3_600_000, 250, 1,
  ]);
  for (const value of ["30", "", "1d", "-1s", "1e3s", Number.NaN, -1, Number.POSITIVE_INFINITY]) {
    expect(() => milliseconds(value, "timeout")).toThrow(/^timeout: /);
  }
});

test("sizes are powers of 1024, whole and safe", () => {
  expect(["512MiB", "2g", "64k", "1.5GB", "65536", 7].map((value) => bytes(value, "memory"))).toEqual([
    536870912, 2147483648, 65536, 1610612736, 65536, 7,
  ]);
  for (const value of ["", "1x", "-1", 1.5, 2 ** 60, Number.NaN]) {
    expect(() => bytes(value, "memory")).toThrow(/^memory: /);
  }
});

test("what is refused is named as it was given, also what JSON cannot say", () => {
  const given = (value: unknown) => value as number;
  expect(() => milliseconds(Number.NaN, "timeout")).toThrow("timeout: NaN is neither");
  expect(() => bytes(Number.POSITIVE_INFINITY, "memory")).toThrow("memory: Infinity is neither");
  expect(() => milliseconds(given(5n), "timeout")).toThrow("timeout: 5 is neither");
  expect(() => bytes(given(["5"]), "memory")).toThrow("memory: an object is neither");
  expect(() => milliseconds(given(null), "timeout")).toThrow("timeout: null is neither");
});

test("what all streams of a connection may have on their way stays below what a server holds for one", () => {
  const mib = 1024 * 1024;
  for (const streams of [0, 1, 8]) expect(creditOf(streams)).toBe(4 * mib);
  for (const streams of [9, 32, 100, 128]) expect(streams * creditOf(streams)).toBeLessThanOrEqual(32 * mib);
  expect(creditOf(100_000)).toBe(256 * 1024);
});
