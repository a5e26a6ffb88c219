// MessagePack as its specification has it, byte by byte: another language's program reads what is packed here.
import { describe, expect, test } from "bun:test";
import { pack, unpack } from "./msgpack.ts";
import { seeded } from "./testing.ts";

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");
const of = (text: string): Buffer => Buffer.from(text.replaceAll(" ", ""), "hex");

/** Each value as it is packed, shortest form first. */
const FORMS: [unknown, string][] = [
  [null, "c0"],
  [false, "c2"],
  [true, "c3"],
  [0, "00"],
  [127, "7f"],
  [128, "cc80"],
  [255, "ccff"],
  [256, "cd0100"],
  [65535, "cdffff"],
  [65536, "ce00010000"],
  [2 ** 32 - 1, "ceffffffff"],
  [2 ** 32, "cb41f0000000000000"],
  [2 ** 53 - 1, "cb433fffffffffffff"],
  [-1, "ff"],
  [-32, "e0"],
  [-33, "d0df"],
  [-128, "d080"],
  [-129, "d1ff7f"],
  [-32768, "d18000"],
  [-32769, "d2ffff7fff"],
  [-(2 ** 31), "d280000000"],
  [-(2 ** 31) - 1, "cbc1e0000000200000"],
  [1.5, "cb3ff8000000000000"],
  [Number.POSITIVE_INFINITY, "cb7ff0000000000000"],
  ["", "a0"],
  ["end", "a3656e64"],
  ["é€😀", "a9c3a9e282acf09f9880"],
  ["x".repeat(31), `bf${"78".repeat(31)}`],
  ["x".repeat(32), `d920${"78".repeat(32)}`],
  ["é".repeat(16), `d920${"c3a9".repeat(16)}`],
  ["x".repeat(41), `d929${"78".repeat(41)}`],
  ["x".repeat(255), `d9ff${"78".repeat(255)}`],
  ["x".repeat(256), `da0100${"78".repeat(256)}`],
  ["x".repeat(65536), `db00010000${"78".repeat(65536)}`],
  [new Uint8Array(0), "c400"],
  [new Uint8Array(255), `c4ff${"00".repeat(255)}`],
  [new Uint8Array(256), `c50100${"00".repeat(256)}`],
  [new Uint8Array(65536), `c600010000${"00".repeat(65536)}`],
  [[], "90"],
  [[1, [2]], "92019102"],
  [new Array(16).fill(0), `dc0010${"00".repeat(16)}`],
  [{}, "80"],
  [{ a: 1, b: { c: "d" } }, "82a16101a16281a163a164"],
];

describe("a value and its bytes", () => {
  for (const [value, packed] of FORMS) {
    test(packed.slice(0, 24), () => {
      expect(hex(pack(value))).toBe(packed);
      const again = unpack(of(packed));
      expect(value instanceof Uint8Array ? new Uint8Array(Object(again)) : again).toEqual(value);
    });
  }
});

test("maps of more than 15 and of more than 65,535 fields say so", () => {
  for (const [count, head] of [
    [15, "8f"],
    [16, "de0010"],
    [65535, "deffff"],
    [65536, "df00010000"],
  ] as const) {
    const map = Object.fromEntries(Array.from({ length: count }, (_, i) => [`k${i}`, i]));
    const packed = pack(map);
    expect(hex(packed.subarray(0, head.length / 2))).toBe(head);
    expect(unpack(packed)).toEqual(map);
  }
});

test("what other encoders send is read as well: longer forms, 64 bits, short floats, numbers as names", () => {
  const forms: [string, unknown][] = [
    ["cd0001", 1],
    ["cf0000000100000000", 2 ** 32],
    ["cf001fffffffffffff", 2 ** 53 - 1],
    ["d3ffffffffffffffff", -1],
    ["d3ffe0000000000001", -(2 ** 53) + 1],
    ["d3001fffffffffffff", 2 ** 53 - 1],
    ["ca3fc00000", 1.5],
    ["d903656e64", "end"],
    ["dd0000000101", [1]],
    ["df00000001a16101", { a: 1 }],
    ["81d9016101", { a: 1 }],
    ["810501", { "5": 1 }],
  ];
  for (const [bytes, value] of forms) expect([bytes, unpack(of(bytes))]).toEqual([bytes, value]);
});

test("what is cut off anywhere, goes on, or has types that are not used here is refused", () => {
  const whole = pack({ type: "end", list: [1, 1.5, -70_000, "x".repeat(300)], data: new Uint8Array(9) });
  for (let length = 0; length < whole.length; length++)
    expect(() => unpack(whole.subarray(0, length))).toThrow();
  for (const bytes of ["00 00", "c1", "d40000", "d6ff00000000", "c70100ff", "81 c0 01", "81 8000 01"])
    expect(() => unpack(of(bytes))).toThrow();
});

test("a field that is undefined is left out; what cannot be encoded is told, not dropped", () => {
  expect(hex(pack({ a: undefined, b: 1 }))).toBe("81a16201");
  expect(hex(pack([undefined]))).toBe("91c0");
  for (const value of [1n, Symbol("x"), () => 1]) expect(() => pack({ value })).toThrow(TypeError);
  const ring: { self?: unknown } = {};
  ring.self = ring;
  expect(() => pack(ring)).toThrow();
  expect(hex(pack(1))).toBe("01");
});

test("words that are known again are the right ones, however many there are", () => {
  const random = seeded(7);
  const letter = () => String.fromCharCode(97 + Math.floor(random() * 3));
  for (let i = 0; i < 20_000; i++) {
    const word = Array.from({ length: Math.floor(random() * 9) }, letter).join("");
    const value = { [word]: word, [`${word}é`]: `${word}é` };
    expect(unpack(pack(value))).toEqual(value);
  }
});

test("bytes that are no UTF-8 become U+FFFD, also where a word whose characters have their codes is known", () => {
  expect(unpack(of("a3efbfbd"))).toBe("\uFFFD");
  for (let i = 0; i < 256; i++) {
    const letter = String.fromCharCode(i);
    expect(unpack(pack(`${letter}é`))).toBe(`${letter}é`);
    for (let j = 0; j < 128; j++)
      expect(unpack(Buffer.of(0xa2, j, 0xe9))).toBe(`${String.fromCharCode(j)}\uFFFD`);
  }
});
