// The vectors are the contract in bytes: they must be those of today's schemas, and this implementation must pass.
import { describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { identityOf, parseCreds, publicKeyOf, signerOf } from "../credentials/index.ts";
import * as c from "./index.ts";
import { allMessages, jsonSchemaOf } from "./json-schema.ts";
import { generate, tagBytes } from "./vectors.ts";

const ROOT = join(import.meta.dir, "..", "..");
const read = (name: string) =>
  JSON.parse(readFileSync(join(import.meta.dir, "vectors", `${name}.json`), "utf8"));
const bytes = (hex: string) => Buffer.from(hex, "hex");
const refusal = (act: () => unknown): c.SandmeshError => {
  try {
    act();
  } catch (thrown) {
    return c.toSandmeshError(thrown);
  }
  throw new Error("was accepted");
};

test("the committed vectors are those of the contract as it is now", () => {
  for (const [path, content] of generate()) {
    const stale = readFileSync(join(ROOT, path), "utf8") !== content;
    expect({ path, stale }).toEqual({ path, stale: false });
  }
});

interface MessageVectors {
  valid: { name: string; msgpack: string; json: string; parsed: unknown }[];
  invalid: { name: string; msgpack: string; code: string; field: string }[];
}
const MESSAGES: Record<string, MessageVectors> = read("messages");

describe("messages", () => {
  for (const [message, schema] of Object.entries(allMessages())) {
    test(message, () => {
      const vectors = MESSAGES[message];
      if (vectors === undefined) throw new Error("no vectors");
      for (const { name, msgpack, json, parsed } of vectors.valid) {
        expect([name, tagBytes(c.parse(schema, bytes(msgpack)))]).toEqual([name, parsed]);
        expect([name, tagBytes(c.parse(schema, Buffer.from(json)))]).toEqual([name, parsed]);
      }
      for (const { name, msgpack, code, field } of vectors.invalid) {
        const error = refusal(() => c.parse(schema, bytes(msgpack)));
        expect([name, error.code, error.field]).toEqual([name, code, field]);
      }
      expect(vectors.valid.length).toBeGreaterThan(0);
      expect(vectors.invalid.length).toBeGreaterThan(0);
    });
  }
});

test("every rule of a schema reaches the JSON Schema: none is left without a word", () => {
  const known = ["exactly one of argv, shell and port is needed", "a session takes a shell line"];
  known.push("name exactly one of sandbox, lease and run", "two volumes have the same mount_path");
  known.push("must be of the path below the folder: not absolute, and without the names `.` and `..`");
  known.push("must not contain a line end");
  const found = new Set<string>();
  const walk = (value: unknown, at: string): void => {
    if (typeof value !== "object" || value === null) return;
    if (!Array.isArray(value) && Object.keys(value).length === 0) throw new Error(`${at} allows anything`);
    for (const [key, inner] of Object.entries(value)) {
      if (key === "checks") for (const check of inner) found.add(check);
      else if (key !== "default") walk(inner, `${at}.${key}`);
    }
  };
  for (const [message, schema] of Object.entries(allMessages())) {
    const json = jsonSchemaOf(schema);
    expect([message, json.type]).toEqual([message, "object"]);
    walk(json, message);
  }
  expect([...found].sort()).toEqual(known.sort());
});

test("error codes, outcomes and subjects are what the vectors say", () => {
  for (const { code, class: name, retryable, wire } of read("errors").classes) {
    const error = c.fromWire(wire);
    expect([error.code, error.name, error.retryable, error.toWire()]).toEqual([code, name, retryable, wire]);
  }
  for (const { outcome, describe: line } of read("outcomes")) {
    expect(c.describeOutcome(c.check(c.Outcome, outcome))).toBe(line);
  }
  for (const { subject, parsed } of read("subjects").parsed)
    expect(c.parseSubject(subject) ?? null).toEqual(parsed);
});

test("ids that would change a subject's meaning are refused wherever a subject is built", () => {
  const { built, refused } = read("subjects");
  expect(Object.keys(built).length).toBeGreaterThan(10);
  const build: Record<string, (...args: string[]) => string> = {
    sandbox: (t = "", s = "", verb = "") => c.sandboxSubject(t, s, verb),
    reply_wildcard: (t = "", u = "") => c.replyWildcard(t, u),
    run_event: (t = "", r = "", what = "") => c.runEventSubject(t, r, what),
  };
  for (const { build: name, args, field } of refused) {
    const error = refusal(() => build[name]?.(...args));
    expect([name, args, error.code, error.field]).toEqual([name, args, "invalid_request", field]);
  }
  const { valid, invalid, uuids } = read("ids");
  for (const id of valid) expect([id, c.ID_PATTERN.test(id)]).toEqual([id, true]);
  for (const id of invalid) expect([id, c.ID_PATTERN.test(id)]).toEqual([id, false]);
  for (const { id, valid: ok } of uuids) expect([id, c.UUID_V7_PATTERN.test(id)]).toEqual([id, ok]);
});

test("a body that is no map of MessagePack or JSON is refused, whatever it claims to be", () => {
  for (const { name, body, decoded, code, field } of read("bodies")) {
    if (code === undefined) expect([name, c.decode(bytes(body))]).toEqual([name, decoded]);
    else {
      const error = refusal(() => c.decode(bytes(body)));
      expect([name, error.code, error.field]).toEqual([name, code, field]);
    }
  }
});

test("a credentials file is read, and a nonce signed, as the vectors say; a damaged one is refused", () => {
  const { creds, creds_with_crlf, jwt, seed, public_key, nonce, signature, tenant, user, bad } =
    read("credentials");
  expect(parseCreds(creds)).toEqual({ jwt, seed });
  expect(parseCreds(creds_with_crlf)).toEqual({ jwt, seed });
  expect(publicKeyOf(seed)).toBe(public_key);
  expect(signerOf(seed).sign(Buffer.from(nonce)).toString("base64url")).toBe(signature);
  expect(identityOf(jwt)).toMatchObject({ tenant, user, publicKey: public_key });
  for (const { name, creds: content } of bad) {
    expect([name, refusal(() => parseCreds(content)).code]).toEqual([name, "invalid_request"]);
  }
});
