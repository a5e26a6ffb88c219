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
  throw new InvalidRequestError(`${field}: ${issue.message}`, { field });
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
