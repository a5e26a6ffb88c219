// From bytes to a checked message, and back.
import * as v from "valibot";
import { decode } from "./codec.ts";
import { fromWire, InvalidRequestError, type WireError } from "./errors.ts";
import type { Schema } from "./messages/index.ts";
import { quickCheck, UNSURE } from "./quick-check.ts";

/** Checks `value` against `schema`; throws InvalidRequestError that names the first field at fault. */
export function check<S extends Schema>(schema: S, value: unknown): v.InferOutput<S> {
  const quick = quickCheck(schema, value);
  // What it answers is what safeParse answers, which a test holds it to.
  if (quick !== UNSURE) return quick as v.InferOutput<S>;
  const result = v.safeParse(schema, value, { abortEarly: true });
  if (result.success) return result.output;
  const issue = result.issues[0];
  const field = v.getDotPath(issue) ?? "body";
  throw new InvalidRequestError(`${field}: ${wordsOf(issue)}`, { field });
}

const WORDS: Record<string, string> = {
  string: "must be a string",
  number: "must be a number",
  boolean: "must be true or false",
  array: "must be a list",
  object: "must be a map",
  record: "must be a map",
};

/** A schema's own words; where it has none, the same as others have, in place of valibot's. */
export function wordsOf({ message, type, input, expected, requirement }: v.BaseIssue<unknown>): string {
  if (!/^Invalid [a-z]+: (Expected|Received) /.test(message)) return message;
  if (input === undefined) return "is missing";
  const words = WORDS[type];
  if (words !== undefined) return words;
  if (type === "max_length" || type === "min_length") {
    const what = Array.isArray(input) ? "elements" : "characters";
    return `must be at ${type === "max_length" ? "most" : "least"} ${requirement} ${what}`;
  }
  const options = expected?.match(/^\((.*)\)$/)?.[1]?.split(" | ") ?? [expected ?? "something else"];
  const named = options.map((each) => each.replace(/^"(.*)"$/, "$1")).join(", ");
  return options.length > 1 ? `must be one of ${named}` : `must be ${named}`;
}

/** Decodes and checks one request. */
export function parse<S extends Schema>(schema: S, body: Uint8Array): v.InferOutput<S> {
  return check(schema, decode(body));
}

/** Decodes one answer and checks it; throws the error that it carries. */
export function parseAnswer<S extends Schema>(schema: S, body: Uint8Array): v.InferOutput<S> {
  const value = decode(body);
  throwIfError(value);
  return check(schema, value);
}

/** Throws the error that an answer carries, if it carries one. */
export function throwIfError(value: Record<string, unknown>): void {
  const { error } = value;
  if (typeof error !== "object" || error === null) return;
  const wire = error as Partial<WireError>;
  throw fromWire({
    ...wire,
    code: String(wire.code),
    message: String(wire.message ?? wire.code),
    retryable: wire.retryable === true,
  });
}
