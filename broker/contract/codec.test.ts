import { expect, test } from "bun:test";
import { decode, encode, encodingOf } from "./codec.ts";

test("what a person types in a request's place, such as null, is answered in JSON and in words, not as broken MessagePack", () => {
  for (const body of ["null", "[]", "[1]", '"text"', "7", "true"]) {
    expect([body, encodingOf(Buffer.from(body))]).toEqual([body, "json"]);
    expect(() => decode(Buffer.from(body))).toThrow("the body must be a map: a JSON object");
  }
  for (const body of ["nonsense", "[", '{"a":']) {
    expect(encodingOf(Buffer.from(body))).toBe("json");
    expect(() => decode(Buffer.from(body))).toThrow("neither a MessagePack map nor JSON");
  }
  expect(decode(Buffer.from('\n {"a": 1}'))).toEqual({ a: 1 });
});

test("maps of every size are known as MessagePack", () => {
  for (const size of [0, 1, 15, 16, 65_536]) {
    const body = encode(Object.fromEntries(Array.from({ length: size }, (_, i) => [`k${i}`, i])));
    expect([size, encodingOf(body), Object.keys(decode(body)).length]).toEqual([size, "msgpack", size]);
  }
});
