// Whether the next create may begin: by rate, and by how many are booting. Bursts break on how many *start* at once,
// so that bound comes first.
import { type Bucket, type BucketLimits, takeToken } from "./token-bucket.ts";

export interface PaceLimits extends BucketLimits {
  maxBooting: number;
}

/** With its reason, so that "why is it slow" has an answer. */
export type Decision =
  | { go: true; bucket: Bucket }
  /** Something that boots must finish first; asking again earlier is of no use. */
  | { go: false; because: "booting"; booting: number; maxBooting: number }
  | { go: false; because: "rate"; waitMs: number; bucket: Bucket };

export function decide(bucket: Bucket, booting: number, limits: PaceLimits, now: number): Decision {
  const { maxBooting } = limits;
  if (booting >= maxBooting) return { go: false, because: "booting", booting, maxBooting };
  const { bucket: left, waitMs } = takeToken(bucket, limits, now);
  return waitMs === 0 ? { go: true, bucket: left } : { go: false, because: "rate", waitMs, bucket: left };
}
