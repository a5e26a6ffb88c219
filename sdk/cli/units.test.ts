import { describe, expect, test } from "bun:test";
import {
  collectEnv,
  countFrom,
  parseCores,
  parseCount,
  parseDuration,
  parseLease,
  sizeFrom,
} from "./units.ts";

describe("values as people type them", () => {
  test("a duration without a unit is seconds, never milliseconds", () => {
    expect(parseDuration("30")).toBe(30_000);
    expect(["500ms", "30s", "5m", "1h", "1.5s"].map(parseDuration)).toEqual([
      500, 30_000, 300_000, 3_600_000, 1500,
    ]);
  });

  test("a lease is as long as the pool gives, and what is not is told in the option's own words", () => {
    expect(parseLease("24h")).toBe(86_400_000);
    expect(() => parseLease("48h")).toThrow("at most 24h");
    expect(() => parseLease("10ms")).toThrow("at least 1s");
  });

  test("sizes are powers of 1024, however the unit is written", () => {
    expect(["512m", "512MiB", "512MB", "2g", "65536", "1.5k"].map(sizeFrom("1"))).toEqual([
      2 ** 29,
      2 ** 29,
      2 ** 29,
      2 ** 31,
      65536,
      1536,
    ]);
  });

  test("what is no value is refused, not taken for zero", () => {
    for (const bad of ["", "x", "-1s", "1d", ".", "NaN"]) expect(() => parseDuration(bad)).toThrow();
    for (const bad of ["", "x", "-1", "1p"]) expect(() => sizeFrom("1")(bad)).toThrow();
    for (const bad of ["", "x", "1.5", "-1"]) expect(() => parseCount(bad)).toThrow();
    for (const bad of ["x", "0", "-1"]) expect(() => parseCores(bad)).toThrow();
  });

  test("what is too little is told as it is typed, and not in the wire's units", () => {
    expect(() => parseLease("0")).toThrow("must be at least 1s");
    expect(() => sizeFrom("16m")("1k")).toThrow("must be at least 16m");
    expect(() => countFrom(16)("15")).toThrow("must be at least 16");
    expect([parseLease("1"), sizeFrom("16m")("16m"), countFrom(16)("16")]).toEqual([1000, 2 ** 24, 16]);
  });

  test("a value may hold '=', and a name alone takes this process's value", () => {
    process.env.SANDMESH_UNIT_TEST = "here";
    expect(collectEnv("A=b=c", collectEnv("SANDMESH_UNIT_TEST"))).toEqual({
      SANDMESH_UNIT_TEST: "here",
      A: "b=c",
    });
    expect(collectEnv("SANDMESH_NOT_SET_ANYWHERE")).toEqual({});
    expect(() => collectEnv("=x")).toThrow();
  });
});
