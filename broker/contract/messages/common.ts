// What several messages share.
import * as v from "valibot";
import { CommandId, Id } from "../ids.ts";

/** The only version there is. A request without one, or with another, is refused; a person's JSON may leave it out. */
const VERSION = 1;

export const MAX_SAFE = Number.MAX_SAFE_INTEGER;

export const Version = v.optional(v.literal(VERSION, `must be ${VERSION}`), VERSION);

/** A whole number of `what`, 0 to `max`. */
export const whole = (what: string, max = MAX_SAFE, min = 0) =>
  v.pipe(
    v.number("must be a number"),
    v.integer("must be a whole number"),
    v.minValue(min, `must be at least ${min}`),
    v.maxValue(max, `must be at most ${max}`),
    v.description(what),
  );

/** A duration in milliseconds on the receiver's clock; at most 30 days. */
export const milliseconds = (what: string, min = 0) => whole(`${what}, ms`, 30 * 24 * 3600 * 1000, min);

/** Bytes: `bin` in MessagePack, base64 in JSON. */
export const Bytes = v.union(
  [
    v.instance(Uint8Array),
    v.pipe(
      v.string(),
      v.base64("must be base64"),
      v.transform((text): Uint8Array => Buffer.from(text, "base64")),
    ),
  ],
  "must be binary (base64 in JSON)",
);

/** Text without NUL, which no path, argument or environment variable can hold. */
export const text = (what: string, max: number, min = 0) =>
  v.pipe(
    v.string("must be a string"),
    v.minLength(min, "must not be empty"),
    v.maxLength(max, `must be at most ${max} characters`),
    v.check((s) => !s.includes("\0"), "must not contain NUL"),
    v.description(what),
  );

/** Linux's PATH_MAX. */
export const Path = text("A path; relative ones start at the sandbox's working folder", 4096, 1);

/** Of requests that name files. */
export const RootPath = v.optional(
  v.pipe(
    Path,
    v.description(
      "A folder that the path is relative to and does not leave: one that would, by `..`, an absolute path or a symlink, is a `file_error` with reason `EXDEV`, whatever is swapped meanwhile (as RESOLVE_BENEATH of openat2(2)); hard links and mounts do lead out",
    ),
  ),
);

const EnvName = v.pipe(
  v.string(),
  v.minLength(1, "an environment variable's name must not be empty"),
  v.maxLength(32768),
  v.check((s) => !/[=\0]/.test(s), "an environment variable's name must not contain '=' or NUL"),
);

/** A map. `v.record` alone takes a list for a map with the keys 0, 1, …, so that Docker's form of `env`, a list of
 * "NAME=value", would be accepted and set nothing but nonsense. */
export function map<const K extends v.GenericSchema<string, string>, const V extends v.GenericSchema>(
  key: K,
  value: V,
) {
  const record = v.record(key, value, "must be a map");
  const run: (typeof record)["~run"] = (dataset, config) =>
    record["~run"](isMap(dataset.value) ? dataset : { value: null }, config);
  return { ...record, "~run": run };
}

const isMap = (x: unknown): boolean => !Array.isArray(x) && !(x instanceof Uint8Array);

/** Linux refuses one argument or variable above 128 KiB (MAX_ARG_STRLEN). */
export const MAX_ARG_BYTES = 128 * 1024;
export const Env = map(EnvName, v.nullable(text("A value, or null to remove the variable", MAX_ARG_BYTES)));

/** What a request to a sandbox may carry to be refused once the sandbox is not the caller's any more. */
export const Fence = {
  lease: v.optional(v.pipe(v.string(), v.maxLength(64), v.description("The acquire's id"))),
  generation: v.optional(whole("The grant's generation")),
  incarnation: v.optional(
    v.pipe(v.string(), v.maxLength(64), v.description("The daemon's life; new at each start")),
  ),
};

export const RunId = Id;

/** Who gives it can end what it is of by `abort_transfer`. */
export const Transfer = v.optional(v.pipe(CommandId, v.description("For `abort_transfer`")));

/** The same, and is taken for gone when for 60 s no request came from its connection. */
export const LookTransfer = v.optional(
  v.pipe(CommandId, v.description("For `abort_transfer`; who gives one asks something each 60 s")),
);
