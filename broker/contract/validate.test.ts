// What is said of a field that is at fault.
import { expect, test } from "bun:test";
import * as v from "valibot";
import { FileError, InvalidRequestError } from "./errors.ts";
import { POOL_VERBS, SANDBOX_VERBS } from "./messages/index.ts";
import { check } from "./validate.ts";

function said(work: () => unknown): string {
  try {
    work();
  } catch (error) {
    if (error instanceof InvalidRequestError) return error.message;
    throw error;
  }
  return "nothing";
}

test.each([
  [v.object({ path: v.string() }), {}, "path: is missing"],
  [v.object({ a: v.object({ b: v.number() }) }), { a: {} }, "a.b: is missing"],
  [v.object({ path: v.string() }), { path: 3 }, "path: must be a string"],
  [v.object({ on: v.boolean() }), { on: 1 }, "on: must be true or false"],
  [v.object({ a: v.object({}) }), { a: 1 }, "a: must be a map"],
  [v.object({ a: v.record(v.string(), v.string()) }), { a: 1 }, "a: must be a map"],
  [v.object({ a: v.array(v.string()) }), { a: "x" }, "a: must be a list"],
  [v.object({ keep: v.picklist(["head", "tail"]) }), { keep: "x" }, "keep: must be one of head, tail"],
  [v.object({ a: v.pipe(v.string(), v.maxLength(3)) }), { a: "abcd" }, "a: must be at most 3 characters"],
  [
    v.object({ a: v.pipe(v.array(v.string()), v.maxLength(1)) }),
    { a: ["", ""] },
    "a: must be at most 1 elements",
  ],
  [
    v.object({ a: v.pipe(v.string(), v.minLength(1, "must not be empty")) }),
    { a: "" },
    "a: must not be empty",
  ],
])(
  "what a schema says nothing of itself about is said in the words of the others (%#)",
  (schema, value, words) => {
    expect(said(() => check(schema, value))).toBe(words);
  },
);

test("no message's error is in the checker's own words, whatever is left out", () => {
  const requests = [SANDBOX_VERBS, POOL_VERBS].flatMap((verbs) => Object.values(verbs));
  const words = requests.flatMap(({ request }) =>
    [{}, { path: 1, id: 1, rlimits: 1, spec: 1, keep: 1, run: 1, argv: 1 }].map((value) =>
      said(() => check(request, value)),
    ),
  );
  expect(words.filter((each) => each !== "nothing").length).toBeGreaterThan(40);
  for (const each of words) expect(each).not.toMatch(/Invalid|Expected|received/);
});

test("an error's message says what it is about in some thousand characters, however long a caller's text in it is", () => {
  const { message } = new FileError(`${"x".repeat(3_000_000)}: there is no such file`);
  expect(message.length).toBeLessThan(4100);
  expect(message).toStartWith("xxx");
  expect(message).toContain("(2996023 characters)");
  expect(message).toEndWith("xxx: there is no such file");
  expect(new FileError("y".repeat(4000)).message).toBe("y".repeat(4000));
});

test("a pattern that no path below a folder can match is refused, with its field, before anything is walked", () => {
  const glob = (pattern: string) => said(() => check(SANDBOX_VERBS.glob.request, { path: "/", pattern }));
  const search = (files: string) =>
    said(() => check(SANDBOX_VERBS.search.request, { path: "/", text: "x", files }));
  const rule = "must be of the path below the folder: not absolute, and without the names `.` and `..`";
  for (const pattern of ["/etc/*", "/", "!/etc/*", "./a", "a/./b", "../a", "**/..", "a/.", ".."]) {
    expect(glob(pattern)).toBe(`pattern: ${rule}`);
    expect(search(pattern)).toBe(`files: ${rule}`);
  }
  for (const pattern of ["a/b", "**", ".*", "..a/b..", "a../.b", "...", "!a", "{a,b}/*"])
    expect([glob(pattern), search(pattern)]).toEqual(["nothing", "nothing"]);
});
