import { describe, expect, test } from "bun:test";
import { decide } from "./pace.ts";
import { fullBucket, refill, takeToken } from "./token-bucket.ts";

const limits = { perSecond: 10, burst: 5, maxBooting: 8 };

/** How many begin within `ms`, asking again exactly when told to. */
function begun(ms: number, from = 0): number {
  let bucket = fullBucket(limits, from);
  let count = 0;
  for (let now = from; now < from + ms; ) {
    const { bucket: next, waitMs } = takeToken(bucket, limits, now);
    bucket = next;
    if (waitMs === 0) count++;
    else now += waitMs;
  }
  return count;
}

describe("pace", () => {
  test("a burst goes at once, then the rate holds", () => {
    expect(begun(1)).toBe(5);
    expect(begun(1000)).toBe(14);
    expect(begun(10_000)).toBe(104);
  });

  test("a long rest does not save up more than one burst", () => {
    const rested = refill(fullBucket(limits, 0), limits, 3_600_000);
    expect(rested.tokens).toBe(5);
  });

  test("a clock that steps back neither gives nor costs tokens", () => {
    const bucket = { tokens: 2, at: 1_000_000 };
    expect(refill(bucket, limits, 1_000).tokens).toBe(2);
    expect(refill({ tokens: 2, at: 1_000 }, limits, 1_100).tokens).toBe(3);
  });

  test("waiting as long as told is enough, a wait is never 0", () => {
    const empty = { tokens: 0.9999999, at: 0 };
    const first = takeToken(empty, limits, 0);
    expect(first.waitMs).toBeGreaterThan(0);
    expect(takeToken(first.bucket, limits, first.waitMs).waitMs).toBe(0);
  });

  test("the bound on booting holds however many tokens there are, and costs none", () => {
    const bucket = fullBucket(limits, 0);
    expect(decide(bucket, 8, limits, 0)).toEqual({
      go: false,
      because: "booting",
      booting: 8,
      maxBooting: 8,
    });
    expect(decide(bucket, 7, limits, 0)).toEqual({ go: true, bucket: { tokens: 4, at: 0 } });
    const empty = decide({ tokens: 0, at: 0 }, 0, limits, 0);
    expect(empty).toMatchObject({ go: false, because: "rate", waitMs: 100 });
  });
});
