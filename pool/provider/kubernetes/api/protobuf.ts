// Protocol buffers, as far as the API server's answers need them: of a message the fields that a table names, in the shape
// that its JSON has (what is empty is absent); all others are skipped unread.

/** Bytes that are no such message. */
export class NoMessage extends Error {}

/** Reads the value that the cursor stands at. */
export type Read = (cursor: Cursor) => unknown;

interface Field {
  name: string;
  read: Read;
  as: "one" | "many" | "map";
}

const [VARINT, FIXED64, BYTES, FIXED32] = [0, 1, 2, 5];
const MORE = 0x80;
const LOW = 0x7f;
/** Of a varint: 64 bits, 7 in each. */
const MAX_VARINT = 10;

class Cursor {
  readonly bytes: Buffer;
  at: number;
  end: number;

  constructor(bytes: Buffer) {
    this.bytes = bytes;
    this.at = 0;
    this.end = bytes.length;
  }

  /** Exact below 2^53. */
  varint(): number {
    let value = 0;
    for (let i = 0, weight = 1; i < MAX_VARINT; i++, weight *= 128) {
      if (this.at >= this.end) break;
      const byte = this.bytes[this.at++] ?? 0;
      value += (byte & LOW) * weight;
      if (byte < MORE) return value;
    }
    throw new NoMessage("a number has no end");
  }

  /** The lower 32 bits, with their sign: what is negative is sent as 64. */
  int32(): number {
    const from = this.at;
    this.varint();
    let value = 0;
    for (let i = 0; i < this.at - from && i < 5; i++) {
      value |= ((this.bytes[from + i] ?? 0) & LOW) << (i * 7);
    }
    return value;
  }

  /** Where the bytes that are ahead end; the cursor stands at the first. */
  stretch(): number {
    const end = this.varint() + this.at;
    if (end > this.end) throw new NoMessage("a field is longer than what it is in");
    return end;
  }

  skip(type: number): void {
    if (type === VARINT) this.varint();
    else if (type === BYTES) this.at = this.stretch();
    else if (type === FIXED64) this.at += 8;
    else if (type === FIXED32) this.at += 4;
    else throw new NoMessage(`there is no type ${type} of fields`);
    if (this.at > this.end) throw new NoMessage("a field is longer than what it is in");
  }
}

export const text: Read = (cursor) => {
  const from = cursor.at;
  cursor.at = cursor.end;
  return cursor.bytes.toString("utf8", from, cursor.end);
};

export const bytes: Read = (cursor) => {
  const from = cursor.at;
  cursor.at = cursor.end;
  return cursor.bytes.subarray(from, cursor.end);
};

export const int: Read = (cursor) => cursor.int32();

const seconds: Read = (cursor) => cursor.varint();

/** A field that is there once, several times, or a map from text to text. */
export const one = (name: string, read: Read): Field => ({ name, read, as: "one" });
export const many = (name: string, read: Read): Field => ({ name, read, as: "many" });
export const map = (name: string): Field => ({ name, read: entry, as: "map" });

/** A message whose fields have these numbers. */
export function message(numbered: Record<number, Field>): (cursor: Cursor) => Record<string, unknown> {
  const fields: (Field | undefined)[] = [];
  for (const [number, field] of Object.entries(numbered)) fields[Number(number)] = field;
  return (cursor) => {
    const found: Record<string, unknown> = {};
    while (cursor.at < cursor.end) {
      const tag = cursor.varint();
      const [type, field] = [tag % 8, fields[Math.floor(tag / 8)]];
      if (field === undefined) cursor.skip(type);
      else put(found, field, contentOf(cursor, type, field.read));
    }
    return found;
  };
}

function contentOf(cursor: Cursor, type: number, read: Read): unknown {
  if (type === VARINT) return read(cursor);
  if (type !== BYTES) throw new NoMessage(`a field has the type ${type}`);
  const [outer, end] = [cursor.end, cursor.stretch()];
  cursor.end = end;
  const value = read(cursor);
  cursor.end = outer;
  cursor.at = end;
  return value;
}

function put(found: Record<string, unknown>, { name, as }: Field, value: unknown): void {
  const before = found[name];
  if (as === "many") {
    if (Array.isArray(before)) before.push(value);
    else found[name] = [value];
  } else if (as === "map") {
    const { key = "", value: of = "" } = Object(value);
    found[name] = Object.assign(Object(before ?? {}), { [key]: of });
  } else if (value !== "" && value !== undefined) found[name] = value;
}

const entry = message({ 1: one("key", text), 2: one("value", text) });
const Time = message({ 1: one("seconds", seconds) });

/** metav1.Time, as its JSON: to the second. Absent where it is none. */
export const time: Read = (cursor) => {
  const { seconds: since } = Time(cursor);
  return typeof since === "number" ? `${new Date(since * 1000).toISOString().slice(0, 19)}Z` : undefined;
};

/** Throws NoMessage. */
export const decode = <T>(read: (cursor: Cursor) => T, from: Uint8Array): T =>
  read(new Cursor(Buffer.from(from.buffer, from.byteOffset, from.byteLength)));
