// Encoding: MessagePack maps, or JSON (what begins as no such map). An answer has the encoding of its request; nothing at
// all is what only a person sends, who reads JSON.
// Not from "msgpackr" itself, which loads a native addon and streams: 4 ms of a boot, and a C++ library in memory.
import { Packr } from "msgpackr/pack";
import { Unpackr } from "msgpackr/unpack";
import { InvalidRequestError } from "./errors.ts";

export type Encoding = "msgpack" | "json";

/** Plain maps, so that any language reads them: no record extension, no shared structures, no typed-array
 * extension; integers beyond 2^53 are refused by the schemas, not rounded. */
const options = {
  useRecords: false,
  moreTypes: false,
  variableMapSize: true,
  int64AsType: "number",
} as const;
const packr = new Packr(options);
const unpackr = new Unpackr(options);

/** What a message with its headers may have: the server refuses larger ones (broker/server/permissions.ts). */
export const MAX_MESSAGE_BYTES = 1024 * 1024;

/** What is no MessagePack map (fixmap, map 16, map 32) is taken for JSON: `null`, `[]` and typing errors come from people. */
export function encodingOf(body: Uint8Array): Encoding {
  const first = body[0] ?? 0;
  return (first & 0xf0) === 0x80 || first === 0xde || first === 0xdf ? "msgpack" : "json";
}

/** Encodes one message. In JSON, binary fields become base64. */
export function encode(message: object, encoding: Encoding = "msgpack"): Uint8Array {
  if (encoding === "msgpack") return packr.pack(message);
  return Buffer.from(JSON.stringify(message, base64Binary));
}

/** What stands in front of a field `name` of `length` bytes, as the last of a message in MessagePack: for data that is
 * large, and is not to be copied. `message` is what else is in it, at most 14 fields. */
export function encodeAhead(message: object, name: string, length: number): Uint8Array {
  const fields = packr.pack(message);
  const head = Buffer.allocUnsafe(fields.length + 1 + name.length + 5);
  head.set(fields);
  // A map of up to 15 fields says so in its first byte.
  head[0] = (fields[0] ?? 0) + 1;
  let at = head.writeUInt8(0xa0 + name.length, fields.length);
  at += head.write(name, at, "latin1");
  at = head.writeUInt8(0xc6, at);
  head.writeUInt32BE(length, at);
  return head;
}

function base64Binary(this: unknown, key: string, value: unknown): unknown {
  // JSON.stringify has called Buffer.toJSON by now, so look at the holder's own value.
  const own = (this as Record<string, unknown>)[key];
  return own instanceof Uint8Array
    ? Buffer.from(own.buffer, own.byteOffset, own.byteLength).toString("base64")
    : value;
}

/** Decodes one message to a plain map; throws InvalidRequestError with field "body" on anything else, and with the field
 * of a text in JSON that has half of a surrogate pair, which has no bytes: U+FFFD in its place would be another argument. The
 * empty body stands for the empty map, so that `nats req … ping ''` works. */
export function decode(body: Uint8Array): Record<string, unknown> {
  if (body.length === 0) return {};
  const json =
    encodingOf(body) === "json"
      ? Buffer.from(body.buffer, body.byteOffset, body.length).toString("utf8")
      : undefined;
  let value: unknown;
  try {
    value = json === undefined ? unpackr.unpack(body) : JSON.parse(json);
  } catch (cause) {
    throw new InvalidRequestError(
      `the body is neither a MessagePack map nor JSON: ${(cause as Error).message}`,
      {
        field: "body",
        cause,
      },
    );
  }
  // Not a list, binary, date or what msgpackr makes of the byte 0xc1: all objects, none of them a plain one.
  if (typeof value !== "object" || value === null || Object.getPrototypeOf(value) !== Object.prototype) {
    throw new InvalidRequestError("the body must be a map: a JSON object, or a MessagePack map", {
      field: "body",
    });
  }
  if (json !== undefined && ESCAPED_HALF.test(json)) onlyWhole(value);
  return value as Record<string, unknown>;
}

/** Only an escape makes one of bytes; of a whole pair, too. */
const ESCAPED_HALF = /\\ud[89a-f]/i;

function onlyWhole(body: object): void {
  const left: [value: unknown, field: string][] = [[body, ""]];
  for (let next = left.pop(); next !== undefined; next = left.pop()) {
    const [value, field] = next;
    if (typeof value === "string" && !value.isWellFormed()) throw half(field);
    if (typeof value !== "object" || value === null) continue;
    for (const [name, each] of Object.entries(value)) {
      if (!name.isWellFormed()) throw half(field === "" ? "body" : field);
      left.push([each, field === "" ? name : `${field}.${name}`]);
    }
  }
}

const half = (field: string): InvalidRequestError =>
  new InvalidRequestError(`${field}: must not contain half of a surrogate pair`, { field });
