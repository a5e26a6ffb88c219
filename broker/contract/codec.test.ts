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

test("half of a surrogate pair in JSON is an invalid request with its field, not another text", () => {
  for (const [body, field] of [
    ['{"shell":"echo \\ud83d"}', "shell"],
    ['{"shell":"echo \\uDE00 x"}', "shell"],
    ['{"argv":["echo","\\udbff"]}', "argv.1"],
    ['{"env":{"A":"\\ude00\\ud83d"}}', "env.A"],
    ['{"env":{"\\ud83d":"x"}}', "env"],
    ['{"\\ud83d":"x"}', "body"],
  ] as const) {
    let thrown: unknown;
    try {
      thrown = decode(Buffer.from(body));
    } catch (error) {
      thrown = error;
    }
    expect([body, thrown]).toMatchObject([body, { code: "invalid_request", field }]);
  }
  const fine = '{"shell":"\\ud83d\\ude00 \u{1f600} \\\\ud83d"}';
  expect(decode(Buffer.from(fine))).toEqual({ shell: "\u{1f600} \u{1f600} \\ud83d" });
});
