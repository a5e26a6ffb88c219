// A check of what is right, made from a schema: valibot's own takes 50 to 90 us for a request, since it makes objects for
// each field; a sandbox's answer waits for it. Where this one finds anything at fault, or meets a kind of schema that it
// does not know, valibot is asked: all errors are its.
import * as v from "valibot";
import type { Schema } from "./messages/index.ts";

/** In place of a value. */
export const UNSURE = Symbol("unsure");

/** Answers what `v.safeParse` answers as the output, or UNSURE. */
type Quick = (value: unknown) => unknown;

interface Field {
  quick: Quick;
  optional: boolean;
  /** What an absent field becomes; undefined: it stays absent. */
  absent: unknown;
  /** Absent it may be, but not undefined. */
  exact?: boolean;
}

const made = new WeakMap<Schema, Quick>();

export function quickCheck(schema: Schema, value: unknown): unknown {
  let quick = made.get(schema);
  if (quick === undefined) {
    quick = quickOf(schema);
    made.set(schema, quick);
  }
  return quick(value);
}

const has = <K extends string>(value: object, key: K): value is Record<K, unknown> => key in value;

function quickOf(schema: Schema): Quick {
  const { type } = schema;
  if (has(schema, "pipe") && Array.isArray(schema.pipe)) return pipeOf(schema, schema.pipe);
  if (type === "object" && has(schema, "entries")) return objectOf(Object(schema.entries));
  if (type === "string") return (value) => (typeof value === "string" ? value : UNSURE);
  if (type === "boolean") return (value) => (typeof value === "boolean" ? value : UNSURE);
  if (type === "number")
    return (value) => (typeof value === "number" && !Number.isNaN(value) ? value : UNSURE);
  if (type === "literal" && has(schema, "literal")) {
    const { literal } = schema;
    return (value) => (value === literal ? value : UNSURE);
  }
  if (type === "picklist" && has(schema, "options") && Array.isArray(schema.options)) {
    const options = new Set<unknown>(schema.options);
    return (value) => (options.has(value) ? value : UNSURE);
  }
  if (type === "instance" && has(schema, "class") && schema.class === Uint8Array)
    return (value) => (value instanceof Uint8Array ? value : UNSURE);
  if (type === "array" && has(schema, "item") && isSchema(schema.item)) return arrayOf(schema.item);
  if (type === "union" && has(schema, "options") && Array.isArray(schema.options))
    return firstOf(schema.options);
  if (type === "variant" && has(schema, "key") && has(schema, "options") && Array.isArray(schema.options))
    return variantOf(schema, String(schema.key), schema.options);
  return slow(schema);
}

const isSchema = (x: unknown): x is Schema =>
  typeof x === "object" && x !== null && has(x, "kind") && x.kind === "schema";

/** By valibot, as a part of what is checked quickly. */
function slow(schema: Schema): Quick {
  return (value) => {
    const result = v.safeParse(schema, value);
    return result.success ? result.output : UNSURE;
  };
}

function objectOf(entries: Record<string, Schema>): Quick {
  const fields = Object.entries(entries).map(([key, schema]) => ({ key, ...fieldOf(schema) }));
  return (value) => {
    if (typeof value !== "object" || value === null) return UNSURE;
    const input: Record<string, unknown> = Object(value);
    const output: Record<string, unknown> = {};
    for (const { key, quick, optional, absent, exact } of fields) {
      const given = input[key];
      if (given === undefined && optional) {
        if (exact === true && key in input) return UNSURE;
        if (absent !== undefined || key in input) output[key] = absent;
        continue;
      }
      const checked = quick(given);
      if (checked === UNSURE) return UNSURE;
      output[key] = checked;
    }
    return output;
  };
}

const WRAPS = new Set(["optional", "exact_optional", "nullish"]);

function fieldOf(schema: Schema): Field {
  const wrapped = WRAPS.has(schema.type) && !has(schema, "pipe") && has(schema, "wrapped") && schema.wrapped;
  if (!isSchema(wrapped)) return { quick: quickOf(schema), optional: false, absent: undefined };
  const byDefault: unknown = has(schema, "default") ? schema.default : undefined;
  const inner = quickOf(wrapped);
  if (schema.type === "exact_optional" && byDefault === undefined)
    return { quick: inner, optional: true, absent: undefined, exact: true };
  const nullish = schema.type === "nullish" && byDefault === undefined;
  const quick = nullish ? (value: unknown) => (value === null ? null : inner(value)) : inner;
  if (byDefault === undefined) return { quick, optional: true, absent: undefined };
  if (schema.type !== "optional") return { quick: slow(schema), optional: false, absent: undefined };
  // One value for all messages must be one that cannot be changed; others valibot makes anew.
  const fixed = ["string", "number", "boolean"].includes(typeof byDefault);
  if (fixed) return { quick, optional: true, absent: quick(byDefault) };
  const made = slow(schema);
  return {
    quick: (value) => (value === undefined ? made(value) : quick(value)),
    optional: false,
    absent: undefined,
  };
}

function arrayOf(item: Schema): Quick {
  const quick = quickOf(item);
  return (value) => {
    if (!Array.isArray(value)) return UNSURE;
    const output: unknown[] = [];
    for (const each of value) {
      const checked = quick(each);
      if (checked === UNSURE) return UNSURE;
      output.push(checked);
    }
    return output;
  };
}

/** A union's output is that of its first option that fits; the first is tried here, valibot looks for a later one. */
function firstOf([first]: readonly unknown[]): Quick {
  return isSchema(first) ? quickOf(first) : () => UNSURE;
}

/** Those whose options are objects that a literal or picklist tells apart; a value that is in several is unsure. */
function variantOf(schema: Schema, key: string, options: readonly unknown[]): Quick {
  const byName = new Map<unknown, Quick>();
  for (const option of options) {
    if (!isSchema(option) || !has(option, "entries") || has(option, "pipe")) return slow(schema);
    const name = Object(option.entries)[key];
    if (!isSchema(name) || name.type !== "literal" || !has(name, "literal") || byName.has(name.literal))
      return slow(schema);
    byName.set(name.literal, quickOf(option));
  }
  return (value) => {
    if (typeof value !== "object" || value === null) return UNSURE;
    return byName.get(Object(value)[key])?.(value) ?? UNSURE;
  };
}

type Test = (value: unknown) => boolean;
const lengthOf = (value: unknown): number => Number(Object(value).length);

/** Undefined for what is not known, true for what does not bear on the value. */
function testOf(action: { type: string; requirement?: unknown }): Test | true | undefined {
  const { type, requirement } = action;
  if (type === "description") return true;
  if (type === "integer") return Number.isInteger;
  if (type === "regex" && requirement instanceof RegExp && !requirement.global && !requirement.sticky)
    return (value) => requirement.test(String(value));
  if (type === "check" && typeof requirement === "function") return (value) => requirement(value) === true;
  if (typeof requirement !== "number") return undefined;
  if (type === "min_value") return (value) => Number(value) >= requirement;
  if (type === "max_value") return (value) => Number(value) <= requirement;
  if (type === "min_length") return (value) => lengthOf(value) >= requirement;
  if (type === "max_length") return (value) => lengthOf(value) <= requirement;
  return undefined;
}

function pipeOf(schema: Schema, [root, ...actions]: readonly unknown[]): Quick {
  if (!isSchema(root)) return slow(schema);
  const quick = quickOf(root);
  const tests: Test[] = [];
  for (const action of actions) {
    const known = typeof action === "object" && action !== null && has(action, "type");
    const test = known ? testOf({ ...action, type: String(action.type) }) : undefined;
    if (test === undefined) return slow(schema);
    if (test !== true) tests.push(test);
  }
  return (value) => {
    const checked = quick(value);
    if (checked === UNSURE) return UNSURE;
    for (const test of tests) if (!test(checked)) return UNSURE;
    return checked;
  };
}
