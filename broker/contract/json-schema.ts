// Each message's schema as JSON Schema: what the reference page and SDKs in other languages are made from. For
// generators and tests only; nothing that runs imports it.
import { toJsonSchema } from "@valibot/to-json-schema";
import type * as v from "valibot";
import {
  Bootstrap,
  ChunkFrame,
  CreditRequest,
  EndFrame,
  FileEndFrame,
  PoolEvent,
  Ready,
  StartedFrame,
} from "./index.ts";
import { Bytes } from "./messages/common.ts";
import type { Schema } from "./messages/index.ts";
import * as contract from "./messages/index.ts";

/** The keywords that the contract's schemas come to. Beyond JSON Schema: `format: "binary"` (`bin` in MessagePack,
 * base64 in JSON) and `checks` (rules that JSON Schema has no word for, by their message). */
export interface JsonSchema {
  type?: string;
  const?: unknown;
  enum?: unknown[];
  default?: unknown;
  description?: string;
  format?: string;
  pattern?: string;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  minItems?: number;
  maxItems?: number;
  items?: JsonSchema;
  properties?: Record<string, JsonSchema>;
  required?: string[];
  propertyNames?: JsonSchema;
  additionalProperties?: JsonSchema;
  anyOf?: JsonSchema[];
  oneOf?: JsonSchema[];
  checks?: string[];
}

/** Checks by text, where a pattern says the same. */
const CHECK_PATTERNS: Record<string, string> = {
  "must not contain NUL": "^[^\\u0000]*$",
  "an environment variable's name must not contain '=' or NUL": "^[^=\\u0000]*$",
};

function messageOf(action: object): string {
  return "message" in action && typeof action.message === "string" ? action.message : "";
}

export function jsonSchemaOf(schema: Schema): JsonSchema {
  const out = toJsonSchema(schema as v.GenericSchema, {
    typeMode: "input",
    errorMode: "ignore",
    overrideSchema: ({ valibotSchema }) => (valibotSchema === Bytes ? { format: "binary" } : undefined),
    overrideAction: ({ valibotAction, jsonSchema }) => {
      if (valibotAction.type !== "check") return undefined;
      const message = messageOf(valibotAction);
      const pattern = CHECK_PATTERNS[message];
      if (pattern !== undefined) return { ...jsonSchema, pattern };
      const before = (jsonSchema as JsonSchema).checks ?? [];
      return { ...jsonSchema, checks: [...before, message] } as typeof jsonSchema;
    },
  });
  const { $schema: _draft, ...rest } = out;
  return rest as JsonSchema;
}

/** Every message there is, by name: `sandbox.exec.request`, `pool.acquire.answer`, `frame.end`, … */
export function allMessages(): Record<string, Schema> {
  const all: Record<string, Schema> = {};
  const tables = { sandbox: contract.SANDBOX_VERBS, pool: contract.POOL_VERBS } as const;
  for (const [room, verbs] of Object.entries(tables)) {
    for (const [name, verb] of Object.entries<contract.Verb>(verbs)) {
      all[`${room}.${name}.request`] = verb.request;
      if (!("frames" in verb.answer)) all[`${room}.${name}.answer`] = verb.answer;
    }
  }
  all["sandbox.credit.request"] = CreditRequest;
  all["frame.chunk"] = ChunkFrame;
  all["frame.started"] = StartedFrame;
  all["frame.end"] = EndFrame;
  all["frame.file_end"] = FileEndFrame;
  for (const [name, schema] of Object.entries<Schema>(contract.CONTROL_VERBS))
    all[`control.${name}`] = schema;
  all["enrol.request"] = contract.ENROL.request;
  all["enrol.answer"] = contract.ENROL.answer;
  all["event.ready"] = Ready;
  all["event.pool"] = PoolEvent;
  all.bootstrap = Bootstrap;
  return all;
}
