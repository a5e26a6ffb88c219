// For tests: seeded bodies that no honest caller sends. The same seed, the same bodies.
import { encode } from "./codec.ts";

/** Mulberry32: 0 to 1. */
export function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

/** Claims of 2 GiB and more that nothing follows: bin, str, array and map of 32 bits, nested in a map or bare. */
export const HUGE_CLAIMS: readonly Uint8Array[] = ["c6", "db", "dd", "df", "c9"].flatMap((type) =>
  ["7fffffff", "ffffffff", "80000000"].flatMap((length) => [
    Buffer.from(`${type}${length}`, "hex"),
    Buffer.from(`81a161${type}${length}`, "hex"),
    Buffer.from(`81a161${type}${length}00`, "hex"),
  ]),
);

const WORDS = [
  "id",
  "argv",
  "path",
  "data",
  "version",
  "offset",
  "__proto__",
  "constructor",
  "toString",
  "x",
];

function value(random: () => number, depth: number): unknown {
  const pick = Math.floor(random() * (depth > 0 ? 10 : 7));
  switch (pick) {
    case 0:
      return Math.floor((random() - 0.5) * 2 ** 54);
    case 1:
      return random() < 0.5 ? Number.NaN : -Infinity;
    case 2:
      return random() < 0.5;
    case 3:
      return null;
    case 4:
      return String.fromCharCode(
        ...Array.from({ length: Math.floor(random() * 9) }, () => random() * 0x3000),
      );
    case 5:
      return Buffer.from(Array.from({ length: Math.floor(random() * 40) }, () => random() * 256));
    case 6:
      return "9".repeat(Math.floor(random() * 300));
    case 7:
    case 8:
      return Object.fromEntries(
        Array.from({ length: Math.floor(random() * 6) }, () => [
          WORDS[Math.floor(random() * WORDS.length)],
          value(random, depth - 1),
        ]),
      );
    default:
      return Array.from({ length: Math.floor(random() * 5) }, () => value(random, depth - 1));
  }
}

/** `count` bodies: noise, maps of nonsense, both encodings, cut and with flipped bits, and claims of huge lengths. */
export function* bodies(seed: number, count: number): Generator<Uint8Array> {
  const random = seeded(seed);
  for (let i = 0; i < count; i++) {
    const kind = Math.floor(random() * 5);
    if (kind === 0) {
      // Never empty: that is the empty map, and no nonsense.
      yield Buffer.from(Array.from({ length: 1 + Math.floor(random() * 64) }, () => random() * 256));
    } else if (kind === 1) {
      yield HUGE_CLAIMS[Math.floor(random() * HUGE_CLAIMS.length)] ?? Buffer.from("c6ffffffff", "hex");
    } else {
      const fields = Object.fromEntries(WORDS.map((word) => [word, value(random, 4)]));
      const body = Buffer.from(encode(fields, kind === 2 ? "json" : "msgpack"));
      const at = Math.floor(random() * body.length);
      if (kind === 4) body[at] = (body[at] ?? 0) ^ (1 << Math.floor(random() * 8));
      yield random() < 0.3 ? body.subarray(0, at) : body;
    }
  }
}
