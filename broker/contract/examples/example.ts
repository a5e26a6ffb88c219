// The form of the examples from which the test vectors are made.

/** Of one message. `bad` names the field that the refusal must name. */
export interface Examples {
  good: Record<string, Record<string, unknown>>;
  bad: Record<string, [value: unknown, field: string]>;
}

/** Fixed values, so that the vectors are the same bytes each time. */
export const ID = "01920c6a-7b1e-7c3d-8e4f-5a6b7c8d9e0f";
export const ID2 = "01920c6a-7b1f-7000-b000-000000000001";
export const LIFE = "3f9c1b7a5d2e4860";
export const FENCE = { lease: ID2, generation: 7, incarnation: LIFE };
/** No valid UTF-8, a NUL, and line ends of two kinds: what text handling would destroy. */
export const RAW = Uint8Array.of(0xff, 0x00, 0x0d, 0x0a, 0x68, 0x69, 0xc3);

/** Refusals that each request to a sandbox has. */
export const badFence = (rest: Record<string, unknown>): Examples["bad"] => ({
  "another version": [{ ...rest, version: 2 }, "version"],
  "a version as text": [{ ...rest, version: "1" }, "version"],
  "a lease that is no text": [{ ...rest, lease: 5 }, "lease"],
  "a lease too long": [{ ...rest, lease: "x".repeat(65) }, "lease"],
  "a generation below 0": [{ ...rest, generation: -1 }, "generation"],
  "a generation beyond 2^53": [{ ...rest, generation: 2 ** 53 }, "generation"],
  "half a generation": [{ ...rest, generation: 1.5 }, "generation"],
  "an incarnation of null": [{ ...rest, incarnation: null }, "incarnation"],
});
