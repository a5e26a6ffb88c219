// What callers hand in: programs in plain JavaScript, and those with a typing error, learn which argument is at fault
// before anything is sent.
import { check as checkWire, InvalidRequestError, type Schema } from "../../broker/contract/index.ts";

export const invalid = (field: string, must: string): InvalidRequestError =>
  new InvalidRequestError(`${field}: ${must}`, { field });

/** For the rest of `const { known, …, ...rest } = options`: the compiler holds that all known ones are taken out. Throws
 * InvalidRequestError that names what is left. */
export function nothingElse(rest: { readonly [key: string]: never }): void {
  for (const key in rest) throw invalid(key, "there is no such option here");
}

/** Options, to be taken apart. Throws InvalidRequestError where they are none, or their signal is none. */
export function given<Options extends object>(options: Options, field = "options"): Options {
  if (typeof options !== "object" || options === null || Array.isArray(options))
    throw invalid(field, "must be an object");
  if ("signal" in options) checkSignal(options.signal);
  return options;
}

/** The names of all options of an interface; the compiler holds that none is missing. */
export type Names<Options> = { readonly [K in keyof Required<Options>]: true };

/** Throws InvalidRequestError that names the first option that is none of `names`. */
export function onlyKnown<Options extends object>(options: Options, names: Names<Options>): void {
  for (const key in given(options))
    if (!Object.hasOwn(names, key)) throw invalid(key, "there is no such option here");
}

export const isIterable = (value: unknown): value is Iterable<unknown> | AsyncIterable<unknown> =>
  typeof value === "object" && value !== null && (Symbol.asyncIterator in value || Symbol.iterator in value);

/** What callers name otherwise than the wire, beside capitals in place of underscores. */
const ARGUMENTS: Readonly<Record<string, string>> = {
  timeout_ms: "timeout",
  lease_ms: "lease",
  max_life_ms: "maxLife",
};
const argumentOf = (field: string): string => {
  const [name = "", ...rest] = field.split(".");
  const own = ARGUMENTS[name] ?? name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
  return [own, ...rest].join(".");
};

/** As `check`, of a request that was made from a caller's arguments, and in their names. */
export function checkRequest<S extends Schema>(schema: S, request: object): void {
  try {
    checkWire(schema, request);
  } catch (error) {
    if (!(error instanceof InvalidRequestError) || error.field === undefined) throw error;
    throw invalid(argumentOf(error.field), error.message.slice(error.field.length + 2));
  }
}

/** `request`, which can be encoded, and whose texts all become bytes as they are: half of a surrogate pair would
 * silently become U+FFFD, and so another argument, name or path. Throws InvalidRequestError that names the field. */
export function onlyWellFormed<R extends object>(request: R): R {
  check(request, "");
  return request;

  function check(value: unknown, field: string): void {
    if (typeof value === "string") {
      if (!value.isWellFormed()) throw invalid(field, "must not contain half of a surrogate pair");
    } else if (typeof value === "symbol" || typeof value === "function" || typeof value === "bigint") {
      throw invalid(argumentOf(field), `must not be a ${typeof value}`);
    } else if (Array.isArray(value)) {
      for (const each of value) check(each, field);
    } else if (typeof value === "object" && value !== null && !(value instanceof Uint8Array)) {
      for (const [name, each] of Object.entries(value)) {
        const path = field === "" ? name : `${field}.${name}`;
        check(name, field);
        check(each, path);
      }
    }
  }
}

/** Text as UTF-8, or the bytes as they are; throws InvalidRequestError for anything else. */
export function bytesOf(data: string | Uint8Array, field: string): Uint8Array {
  if (typeof data === "string") {
    onlyWellFormed({ [field]: data });
    return Buffer.from(data, "utf8");
  }
  if (data instanceof Uint8Array) return data;
  throw invalid(field, "must be text or bytes");
}

/** Throws InvalidRequestError where it is none, such as the name of a signal of processes. */
function checkSignal(signal: unknown): void {
  const isOne =
    typeof signal === "object" && signal !== null && "addEventListener" in signal && "aborted" in signal;
  if (signal !== undefined && !isOne) throw invalid("signal", "must be an AbortSignal");
}

/** Of options that are a signal or nothing. */
export function onlySignal(options: { signal?: AbortSignal }): { signal: AbortSignal | undefined } {
  const { signal, ...rest } = given(options);
  nothingElse(rest);
  return { signal };
}
