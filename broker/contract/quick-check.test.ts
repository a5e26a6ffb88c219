// The quick check never answers otherwise than valibot: neither takes what that refuses, nor makes another value of it.
import { expect, test } from "bun:test";
import * as v from "valibot";
import * as c from "./index.ts";
import { allMessages } from "./json-schema.ts";
import { quickCheck, UNSURE } from "./quick-check.ts";
import { seeded } from "./testing.ts";
import vectors from "./vectors/messages.json";

const NONSENSE: readonly unknown[] = [
  undefined,
  null,
  true,
  "",
  "a\0b",
  "x".repeat(200_000),
  -1,
  0.5,
  Number.NaN,
  2 ** 53,
  [],
  [null],
  [1, "x"],
  {},
  { type: "chunk" },
  { type: ["chunk"] },
  new Uint8Array(3),
  "AAA=",
  new Date(0),
  () => 1,
];

/** Each field of a message, at any depth, taken away and replaced by each piece of nonsense, and one too many. */
function* mutants(value: unknown, random: () => number): Generator<unknown> {
  if (typeof value !== "object" || value === null || value instanceof Uint8Array) return;
  const copy = (): Record<string, unknown> =>
    Array.isArray(value) ? Object([...value]) : { ...(value as Record<string, unknown>) };
  for (const [key, inner] of Object.entries(value)) {
    const without = copy();
    delete without[key];
    yield without;
    for (const nonsense of NONSENSE) if (random() < 0.5) yield Object.assign(copy(), { [key]: nonsense });
    for (const mutant of mutants(inner, random))
      if (random() < 0.3) yield Object.assign(copy(), { [key]: mutant });
  }
  yield Object.assign(copy(), { unknown_field: 1 });
}

/** With what a plain comparison does not see: absent against undefined, and the order of keys. */
const shown = (value: unknown): string =>
  Bun.inspect(value, { depth: 20 }) + (typeof value === "object" && value !== null ? Object.keys(value) : "");

const examples: Record<string, { valid: { name: string; msgpack: string }[] }> = vectors;

/** Forms that no message has; what a pool reads of a cluster has them. */
const Forms = v.object({
  exact: v.exactOptional(v.string()),
  nullish: v.nullish(v.object({ at: v.nullish(v.string()), code: v.optional(v.number(), 0) })),
  nullishText: v.nullish(v.string(), "none"),
  made: v.optional(
    v.object({ name: v.exactOptional(v.string()), list: v.optional(v.array(v.string()), []) }),
    {},
  ),
});

test("forms of fields that may be absent, null or made anew", () => {
  const random = seeded(1);
  const whole = {
    exact: "a",
    nullish: { at: null, code: 1 },
    nullishText: null,
    made: { name: "x", list: ["y"] },
  };
  const values = [whole, {}, { exact: undefined }, { made: {} }, { nullish: {} }, ...mutants(whole, random)];
  let sure = 0;
  for (const value of values) {
    const quick = quickCheck(Forms, value);
    if (quick === UNSURE) continue;
    const slow = v.safeParse(Forms, value);
    expect([slow.success, shown(quick)]).toEqual([true, shown(slow.output)]);
    sure++;
  }
  expect(sure).toBeGreaterThan(4);
  const [one, other] = [quickCheck(Forms, {}), quickCheck(Forms, {})].map(
    (each) => v.parse(Forms, each).made,
  );
  expect(one?.list).not.toBe(other?.list);
});

for (const [name, schema] of Object.entries(allMessages())) {
  test(name, () => {
    const random = seeded(name.length);
    const compare = (value: unknown): boolean => {
      const quick = quickCheck(schema, value);
      if (quick === UNSURE) return false;
      const slow = v.safeParse(schema, value);
      expect([slow.success, shown(quick)]).toEqual([true, shown(slow.output)]);
      return true;
    };
    for (const nonsense of NONSENSE) compare(nonsense);
    for (const { msgpack } of examples[name]?.valid ?? []) {
      const value = c.decode(Buffer.from(msgpack, "hex"));
      compare(value);
      for (const mutant of mutants(value, random)) compare(mutant);
    }
  });
}

test("it is sure of what is on the path of a command, or it would be of no use", () => {
  const hot = ["sandbox.exec.request", "frame.end", "frame.chunk", "sandbox.credit.request"];
  for (const name of hot) {
    const schema = allMessages()[name];
    if (schema === undefined) throw new Error(`no ${name}`);
    const sure = examples[name]?.valid.map(({ msgpack }) => c.decode(Buffer.from(msgpack, "hex")));
    for (const value of sure ?? [])
      expect([name, quickCheck(schema, value) === UNSURE]).toEqual([name, false]);
    expect(sure?.length).toBeGreaterThan(0);
  }
});
