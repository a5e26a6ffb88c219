import { expect, test } from "bun:test";
import { Chunk, unfinishedTail } from "./chunk.ts";

const TEXT = "aé€😀\u{feff}z";

/** The texts of `bytes` cut into chunks of `size`, and what stays unfinished. */
function texts(bytes: Uint8Array, size: number): { text: string; rest: number } {
  let text = "";
  let carried = new Uint8Array(0) as Uint8Array;
  for (let at = 0; at < bytes.length; at += size) {
    const chunk = new Chunk("stdout", bytes.subarray(at, at + size), at, carried);
    text += chunk.text;
    carried = chunk.unfinished;
  }
  return { text, rest: carried.length };
}

test("a character that is split over chunks is whole in their joined text, wherever it is split", () => {
  const bytes = Buffer.from(TEXT, "utf8");
  for (let size = 1; size <= bytes.length; size++) {
    expect(texts(bytes, size)).toEqual({ text: TEXT, rest: 0 });
  }
});

test("bytes that are no UTF-8 become the same text in chunks as in one piece", () => {
  const bad = [
    0xff, 0, 0x0d, 0x0a, 0xc3, 0x28, 0xe2, 0x82, 0x41, 0xf0, 0x9f, 0x98, 0x41, 0x80, 0xc0, 0x80, 0x41,
  ];
  const whole = new TextDecoder("utf-8", { ignoreBOM: true }).decode(new Uint8Array(bad));
  for (let size = 1; size <= bad.length; size++) {
    expect([size, texts(new Uint8Array(bad), size).text]).toEqual([size, whole]);
  }
});

test("only a sequence that may still be completed is held back", () => {
  expect(
    [[0x41], [0xc3], [0xe2, 0x82], [0xf0, 0x9f, 0x98], [0xff], [0x80, 0x80, 0x80], []].map((bytes) =>
      unfinishedTail(new Uint8Array(bytes)),
    ),
  ).toEqual([0, 1, 2, 3, 0, 0, 0]);
});
