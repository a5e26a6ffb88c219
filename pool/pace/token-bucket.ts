// A token bucket: so many a second on average, so many at once at most. Pure, with the clock passed in.

export interface Bucket {
  tokens: number;
  /** ms since the epoch */
  at: number;
}

export interface BucketLimits {
  perSecond: number;
  burst: number;
}

export const fullBucket = (limits: BucketLimits, now: number): Bucket => ({ tokens: limits.burst, at: now });

/** The bucket as it is at `now`. A clock that steps back adds nothing and takes nothing. */
export function refill(bucket: Bucket, limits: BucketLimits, now: number): Bucket {
  const elapsedMs = Math.max(0, now - bucket.at);
  const tokens = Math.min(limits.burst, bucket.tokens + (elapsedMs * limits.perSecond) / 1000);
  return { tokens, at: now };
}

/** Takes one token from a refilled bucket, or tells in how many ms there will be one (at least 1). */
export function takeToken(
  bucket: Bucket,
  limits: BucketLimits,
  now: number,
): { bucket: Bucket; waitMs: number } {
  const filled = refill(bucket, limits, now);
  if (filled.tokens >= 1) return { bucket: { ...filled, tokens: filled.tokens - 1 }, waitMs: 0 };
  const waitMs = Math.max(1, Math.ceil(((1 - filled.tokens) * 1000) / limits.perSecond));
  return { bucket: filled, waitMs };
}
