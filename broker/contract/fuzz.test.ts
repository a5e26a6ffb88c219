// What a stranger may send: decode, parse and parseSubject answer with a value or a typed error, and with nothing else.
import { describe, expect, test } from "bun:test";
import * as c from "./index.ts";
import { allMessages } from "./json-schema.ts";
import { bodies, HUGE_CLAIMS, seeded } from "./testing.ts";

/** What was thrown; undefined where nothing was. */
const thrownBy = (act: () => unknown): unknown => {
  try {
    act();
    return undefined;
  } catch (thrown) {
    return thrown ?? new Error("threw nothing");
  }
};
const isTyped = (thrown: unknown) => thrown === undefined || thrown instanceof c.InvalidRequestError;
const clean = () => {
  expect(Object.keys(Object.prototype)).toEqual([]);
  expect(Object("x" in {})).toEqual(Object(false));
};

test("decode throws nothing but InvalidRequestError, whatever the bytes", () => {
  for (let seed = 1; seed <= 40; seed++) {
    for (const body of bodies(seed, 100)) {
      const thrown = thrownBy(() => c.decode(body));
      const what = `seed ${seed}: ${Buffer.from(body).toString("hex")}`;
      expect([what, isTyped(thrown)]).toEqual([what, true]);
    }
  }
  clean();
});

describe("parse throws nothing but InvalidRequestError", () => {
  for (const [message, schema] of Object.entries(allMessages())) {
    test(message, () => {
      for (const body of bodies(message.length * 131, 150)) {
        const thrown = thrownBy(() => c.parse(schema, body));
        const what = Buffer.from(body).toString("hex");
        expect([what, isTyped(thrown)]).toEqual([what, true]);
      }
    });
  }
});

test("a length of 2 GiB that nothing follows is refused before memory is taken for it", () => {
  const before = process.memoryUsage().rss;
  for (let i = 0; i < 20; i++) {
    for (const body of HUGE_CLAIMS)
      expect(thrownBy(() => c.decode(body))).toBeInstanceOf(c.InvalidRequestError);
  }
  expect(process.memoryUsage().rss - before).toBeLessThan(256 * 1024 * 1024);
});

test("deep nesting is refused or decoded, and does not end the process", () => {
  for (const open of ["91", "81a161"]) {
    const body = Buffer.from(`81a161${open.repeat(100_000)}c0`, "hex");
    expect(isTyped(thrownBy(() => c.decode(body)))).toBe(true);
  }
  const json = Buffer.from(`{"a":${"[".repeat(200_000)}${"]".repeat(200_000)}}`);
  expect(isTyped(thrownBy(() => c.decode(json)))).toBe(true);
});

test("a key __proto__ changes no prototype, neither that of all maps nor that of the message", () => {
  const json =
    '{"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}},"env":{"__proto__":"x"}}';
  const proto = "a95f5f70726f746f5f5f"; // "__proto__"
  const evil = "81a8706f6c6c7574656401"; // {polluted: 1}
  for (const body of [Buffer.from(json), Buffer.from(`81${proto}${evil}`, "hex")]) {
    const value = thrownBy(() => {
      const decoded = c.decode(body);
      expect(Object.getPrototypeOf(decoded)).toBe(Object.prototype);
      expect("polluted" in decoded).toBe(false);
    });
    expect(isTyped(value)).toBe(true);
  }
  expect("polluted" in {}).toBe(false);
  const request = c.check(c.ExecRequest, JSON.parse('{"argv":["x"],"env":{"__proto__":"x","A":"1"}}'));
  expect(request.env?.A).toBe("1");
  expect(Object.getPrototypeOf(request.env)).toBe(Object.prototype);
});

test("parseSubject throws nothing, and what it takes apart is put together to the same subject", () => {
  const random = seeded(5);
  const parts = [
    "sbx",
    "ctl",
    "rep",
    "pool",
    "evt",
    "enr",
    "v1",
    "v2",
    "acme",
    "sb-1",
    "ann",
    "exec",
    "run",
    "sbx",
  ];
  parts.push("", "*", ">", "a b", "A", "é", "a".repeat(64), "_x", "\0", "__proto__", "constructor", "ready");
  let parsed = 0;
  for (let i = 0; i < 20_000; i++) {
    const length = Math.floor(random() * 8);
    const chosen = Array.from({ length }, () => parts[Math.floor(random() * parts.length)] ?? "");
    // Half of them begin as ours do, so that some are.
    const subject = (random() < 0.5 ? [parts[i % 6], "v1", "acme", ...chosen] : chosen).join(".");
    const got = c.parseSubject(subject);
    if (got === undefined) continue;
    parsed++;
    expect([subject, rebuilt(got)]).toEqual([subject, subject]);
    expect([subject, /[*>\s\0]/.test(subject)]).toEqual([subject, false]);
  }
  expect(parsed).toBeGreaterThan(200);
});

function rebuilt(subject: c.ParsedSubject): string {
  switch (subject.kind) {
    case "sandbox":
      return c.sandboxSubject(subject.tenant, subject.sandbox, subject.verb);
    case "control":
      return c.controlSubject(subject.tenant, subject.sandbox, subject.verb);
    case "pool":
      return c.poolSubject(subject.tenant, subject.verb);
    case "enrol":
      return c.enrolSubject(subject.tenant, subject.sandbox);
    case "reply":
      return c.replySubject(subject.tenant, subject.responder, subject.user, subject.token);
    case "event":
      if (subject.scope === "pool") return c.poolEventSubject(subject.tenant, subject.what);
      return subject.scope === "run"
        ? c.runEventSubject(subject.tenant, subject.of, subject.what)
        : c.sandboxEventSubject(subject.tenant, subject.of, subject.what);
    default:
      return c.assertNever(subject);
  }
}

test("an answer's error of any shape becomes a typed one, and never a hole", () => {
  const random = seeded(9);
  const codes = ["busy", "__proto__", "constructor", "toString", "", "new_code", 7, null, {}];
  for (let i = 0; i < 300; i++) {
    const code = codes[Math.floor(random() * codes.length)];
    const thrown = thrownBy(() => c.throwIfError({ error: { code, message: i % 3 === 0 ? 5 : "m" } }));
    expect(thrown).toBeInstanceOf(c.SandmeshError);
    if (code !== "busy") expect(thrown).toBeInstanceOf(c.InternalError);
  }
});

test("ids of one process only grow, also when the clock steps back, and say their time", () => {
  const ids = [1000, 1000, 999, 2000, 5].map((ms) => c.newUuidV7(4e12 + ms));
  ids.push(...Array.from({ length: 5000 }, () => c.newUuidV7(4e12 + 2000)));
  expect([...ids].sort()).toEqual(ids);
  expect(new Set(ids).size).toBe(ids.length);
  for (const id of ids) expect(c.UUID_V7_PATTERN.test(id)).toBe(true);
  expect(c.uuidV7Time(ids[0] ?? "")).toBe(4e12 + 1000);
});

test("isReplyFor takes what parseSubject takes for an answer subject of that tenant and responder, and nothing else", () => {
  const random = seeded(7);
  const one = (of: readonly string[]): string => of[Math.floor(random() * of.length)] ?? "";
  const odd = [
    "",
    "*",
    ">",
    "a*",
    "A",
    "-a",
    "a b",
    "é",
    "a\n",
    "x".repeat(63),
    "x".repeat(64),
    "\x7f",
    "~",
    "!",
  ];
  const ids = ["acme", "sb-1", "ann", "0"];
  let taken = 0;
  for (let i = 0; i < 20_000; i++) {
    const part = () => (random() < 0.9 ? one(ids) : one(odd));
    const token = Array.from({ length: 1 + Math.floor(random() * 3) }, () =>
      random() < 0.7 ? one(["1f", "a-b", "Z", "(", "+", "=", "?", "/"]) : one(odd),
    ).join(".");
    const subject = `${random() < 0.95 ? "rep" : "sbx"}.v1.${part()}.${part()}.${part()}.${token}${random() < 0.05 ? "\n" : ""}`;
    const parsed = c.parseSubject(subject);
    const expected = parsed?.kind === "reply" && parsed.tenant === "acme" && parsed.responder === "sb-1";
    expect([subject, c.isReplyFor(subject, "acme", "sb-1")]).toEqual([subject, expected]);
    if (expected) taken++;
  }
  expect(taken).toBeGreaterThan(300);
});

test("what stands ahead of a large last field makes the same message as encoding it whole", () => {
  for (const length of [0, 1, 255, 256, 70_000]) {
    const message = { type: "chunk", id: "x", stream: "stdout", offset: 2 ** 40 };
    const data = new Uint8Array(length).fill(7);
    const body = Buffer.concat([c.encodeAhead(message, "data", length), data]);
    expect(c.decode(body)).toEqual(c.decode(c.encode({ ...message, data })));
  }
});
