// `bun broker/contract/vectors.ts`: writes the test vectors that every SDK must pass, and the schemas that the
// Python SDK checks messages by, from the contract. The same bytes each time; vectors.test.ts fails when stale.
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { credentialVectors } from "./examples/credential.ts";
import type { Examples } from "./examples/example.ts";
import { EXEC_EXAMPLES } from "./examples/exec.ts";
import { FILE_EXAMPLES } from "./examples/files.ts";
import { POOL_EXAMPLES } from "./examples/pool.ts";
import { TREE_EXAMPLES } from "./examples/trees.ts";
import { bodyVectors, errorVectors, idVectors, outcomeVectors, subjectVectors } from "./examples/values.ts";
import * as c from "./index.ts";
import { allMessages, type JsonSchema, jsonSchemaOf } from "./json-schema.ts";

const ROOT = join(import.meta.dir, "..", "..");
const EXAMPLES: Record<string, Examples> = {
  ...EXEC_EXAMPLES,
  ...FILE_EXAMPLES,
  ...TREE_EXAMPLES,
  ...POOL_EXAMPLES,
};

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");

/** JSON has no binary: bytes stand as `{"$bytes": hex}` in what a vector says was parsed. */
export function tagBytes(value: unknown): unknown {
  if (value instanceof Uint8Array) return { $bytes: hex(value) };
  if (Array.isArray(value)) return value.map(tagBytes);
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).filter(([, inner]) => inner !== undefined);
  return Object.fromEntries(entries.map(([key, inner]) => [key, tagBytes(inner)]));
}

/** The refusal that parsing must end in; a vector that is not refused is a mistake in the examples. */
function refusalOf(
  schema: c.Schema,
  name: string,
  body: Uint8Array,
): { code: string; field: string | undefined } {
  try {
    c.parse(schema, body);
  } catch (thrown) {
    const { code, field } = c.toSandmeshError(thrown);
    return { code, field };
  }
  throw new Error(`${name}: accepted, though an example of what is bad`);
}

const withoutUndefined = (value: unknown): object =>
  Object.fromEntries(Object.entries(Object(value)).filter(([, inner]) => inner !== undefined));

function validVector(schema: c.Schema, name: string, value: Record<string, unknown>) {
  const body = c.encode(value, "msgpack");
  const json = Buffer.from(c.encode(value, "json")).toString("utf8");
  return { name, msgpack: hex(body), json, parsed: tagBytes(c.parse(schema, body)) };
}

function invalidVector(schema: c.Schema, name: string, value: unknown, field: string) {
  const body = c.encode(withoutUndefined(value), "msgpack");
  const refusal = refusalOf(schema, name, body);
  if (refusal.field !== field) throw new Error(`${name}: the field is ${refusal.field}, expected ${field}`);
  return { name, msgpack: hex(body), ...refusal };
}

function messageVectors(): Record<string, unknown> {
  const vectors: Record<string, unknown> = {};
  for (const [message, schema] of Object.entries(allMessages())) {
    const examples = EXAMPLES[message];
    if (examples === undefined) throw new Error(`no examples of ${message}`);
    try {
      vectors[message] = {
        valid: Object.entries(examples.good).map(([name, value]) => validVector(schema, name, value)),
        invalid: Object.entries(examples.bad).map(([name, [value, field]]) =>
          invalidVector(schema, name, value, field),
        ),
      };
    } catch (cause) {
      throw new Error(`${message}: ${(cause as Error).message}`, { cause });
    }
  }
  return vectors;
}

/** What an SDK in another language needs of the contract at run time. */
function contractFile(): Record<string, unknown> {
  const messages: Record<string, JsonSchema> = {};
  for (const [name, schema] of Object.entries(allMessages())) messages[name] = jsonSchemaOf(schema);
  return {
    limits: {
      max_message_bytes: c.MAX_MESSAGE_BYTES,
      max_chunk_bytes: c.MAX_CHUNK_BYTES,
      max_inline_bytes: c.MAX_INLINE_BYTES,
      default_output_limit_bytes: c.DEFAULT_OUTPUT_LIMIT_BYTES,
      default_credit_bytes: c.DEFAULT_CREDIT_BYTES,
      first_credit_bytes: c.FIRST_CREDIT_BYTES,
      min_lease_ms: c.MIN_LEASE_MS,
      default_lease_ms: c.DEFAULT_LEASE_MS,
      max_lease_ms: c.MAX_LEASE_MS,
    },
    errors: Object.fromEntries(
      Object.entries(c.ERROR_CLASSES).map(([code, Class]) => [code, new Class("").retryable]),
    ),
    messages,
  };
}

/** All generated files, by their path from the checkout's root. */
export function generate(): Map<string, string> {
  const json = (value: unknown) => `${JSON.stringify(value, null, 1)}\n`;
  const vectors = {
    messages: messageVectors(),
    bodies: bodyVectors(),
    subjects: subjectVectors(),
    ids: idVectors(),
    errors: errorVectors(),
    outcomes: outcomeVectors(),
    credentials: credentialVectors(),
  };
  const files = new Map<string, string>();
  for (const [name, value] of Object.entries(vectors)) {
    files.set(`broker/contract/vectors/${name}.json`, json(value));
  }
  files.set("sdk/python/sandmesh/contract.json", json(contractFile()));
  return files;
}

if (import.meta.main) {
  for (const [path, content] of generate()) {
    mkdirSync(dirname(join(ROOT, path)), { recursive: true });
    writeFileSync(join(ROOT, path), content);
    console.log(path);
  }
}
