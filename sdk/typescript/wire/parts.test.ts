import { expect, test } from "bun:test";
import { MAX_CHUNK_BYTES } from "../../../broker/contract/index.ts";
import { type Part, partsOf } from "./parts.ts";

async function all(source: Iterable<Uint8Array>): Promise<Part[]> {
  const parts: Part[] = [];
  for await (const part of partsOf(source)) parts.push(part);
  return parts;
}

const joined = (parts: Part[]): Buffer => Buffer.concat(parts.map((part) => part.data));

const content = (length: number): Buffer => Buffer.from(Uint8Array.from({ length }, (_, i) => (i * 31) >> 3));

test("any cutting of the source arrives as the same bytes, in parts of the largest size, one of them last", async () => {
  for (const length of [
    0,
    1,
    MAX_CHUNK_BYTES - 1,
    MAX_CHUNK_BYTES,
    MAX_CHUNK_BYTES + 1,
    3 * MAX_CHUNK_BYTES,
  ]) {
    for (const piece of [1000, MAX_CHUNK_BYTES, 5 * MAX_CHUNK_BYTES]) {
      const bytes = content(length);
      const pieces: Uint8Array[] = [];
      for (let at = 0; at < length; at += piece) pieces.push(bytes.subarray(at, at + piece));
      const parts = await all(pieces);
      expect(joined(parts).equals(bytes)).toBe(true);
      expect(parts.map((part) => part.last)).toEqual(parts.map((_, i) => i === parts.length - 1));
      expect(parts.length).toBe(Math.max(1, Math.ceil(length / MAX_CHUNK_BYTES)));
    }
  }
});
