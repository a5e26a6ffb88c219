import { describe, expect, test } from "bun:test";
import { decodeRun, encodeRun, graceRun, hasLapsed, newRun, renewRun, touchRun } from "./run.ts";

describe("run lease", () => {
  const run = newRun("t", "r", 60_000, 1_000);

  test("a run lapses at its time, not a millisecond before", () => {
    expect(hasLapsed(run, true, 60_999)).toBe(false);
    expect(hasLapsed(run, true, 61_000)).toBe(true);
  });

  test("an acquire with a shorter lease does not shorten the run, a renewal may", () => {
    expect(touchRun(run, 1_000, 2_000)).toBe(run);
    expect(renewRun(run, 1_000, 2_000).expiresAt).toBe(3_000);
    expect(renewRun(run, undefined, 2_000).expiresAt).toBe(62_000);
  });

  test("waiting acquires of a client that never renewed do not lapse, of one that did they do", () => {
    expect(hasLapsed(run, false, 1e12)).toBe(false);
    expect(hasLapsed(renewRun(run, undefined, 2_000), false, 62_000)).toBe(true);
  });

  test("waiting acquires of a client that was killed before its first renewal lapse, too", () => {
    expect(hasLapsed(newRun("t", "r", 60_000, 1_000, true), false, 61_000)).toBe(true);
    const said = touchRun(run, 1_000, 2_000, true);
    expect(said).toEqual({ ...run, renewed: true });
    expect(touchRun(touchRun(run, 60_000, 2_000, true), 60_000, 3_000).renewed).toBe(true);
  });

  test("the grace after an outage gives a client time to renew, but never more than its lease", () => {
    expect(graceRun(run, 15_000, 100_000).expiresAt).toBe(115_000);
    expect(graceRun(newRun("t", "r", 2_000, 0), 15_000, 100_000).expiresAt).toBe(102_000);
    expect(graceRun(run, 15_000, 2_000)).toBe(run);
  });

  test("it survives the way to the records and back", () => {
    expect(decodeRun(encodeRun(run))).toEqual(run);
  });
});
