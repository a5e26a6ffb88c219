// `bun broker/contract/reference.ts`: writes REFERENCE.md, the wire's reference page, from the schemas.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import * as c from "./index.ts";
import { type JsonSchema, jsonSchemaOf } from "./json-schema.ts";
import { Outcome } from "./outcome.ts";

const TENANT = "default";
const BOX = "sb-1";

/** What a person would type: the subject's verb, and the JSON body. */
const BY_HAND: Record<string, Record<string, unknown>> = {
  "sandbox.ping": {},
  "sandbox.info": {},
  "sandbox.exec": { argv: ["python3", "-c", "print(6 * 7)"], timeout_ms: 10_000 },
  "sandbox.attach": { id: "01920c6a-7b1e-7c3d-8e4f-5a6b7c8d9e0f" },
  "sandbox.signal": { id: "01920c6a-7b1e-7c3d-8e4f-5a6b7c8d9e0f", signal: "SIGINT" },
  "sandbox.cancel": { id: "01920c6a-7b1e-7c3d-8e4f-5a6b7c8d9e0f" },
  "sandbox.commands": {},
  "sandbox.session_open": { session: "main" },
  "sandbox.session_close": { session: "main" },
  "sandbox.sessions": {},
  "sandbox.read": { path: "/etc/hostname" },
  "sandbox.write": { path: "/tmp/hello", data: "aGVsbG8K" },
  "sandbox.stat": { path: "/tmp/hello" },
  "sandbox.list": { path: "/tmp" },
  "sandbox.remove": { path: "/tmp/hello" },
  "sandbox.mkdir": { path: "/tmp/folder" },
  "sandbox.rename": { from: "/tmp/hello", to: "/tmp/world" },
  "pool.acquire": { id: "01920c6a-7b1e-7c3d-8e4f-5a6b7c8d9e0f", run: "by-hand", spec: { image: "host" } },
  "pool.confirm": { sandbox: BOX, generation: 1 },
  "pool.renew": { run: "by-hand" },
  "pool.release": { run: "by-hand" },
  "pool.list": {},
  "pool.status": {},
  "pool.drain": { on: true },
};

const SUBJECTS: readonly [subject: string, from: string, to: string][] = [
  ["`sbx.v1.<tenant>.<sandbox>.<verb>`", "the tenant's users", "that sandbox's daemon"],
  ["`ctl.v1.<tenant>.<sandbox>.<verb>`", "the pool", "that sandbox's daemon"],
  ["`rep.v1.<tenant>.<sandbox or pool>.<user>.<token>`", "that sandbox, or the pool", "that user"],
  ["`pool.v1.<tenant>.<verb>`", "the tenant's users; `drain`: an operator alone", "the pool"],
  ["`enr.v1.<tenant>.<sandbox>`", "a booting daemon, once", "the pool"],
  ["`evt.v1.<tenant>.pool.<what>`", "the pool", "users and observers"],
  ["`evt.v1.<tenant>.run.<run>.<what>`", "the pool", "users and observers"],
  ["`evt.v1.<tenant>.sbx.<sandbox>.<what>`", "that sandbox", "the pool, users and observers"],
];

const PATTERN_NAMES: Record<string, string> = {
  [c.ID_PATTERN.source]: "id",
  [c.UUID_V7_PATTERN.source]: "UUIDv7",
  [c.SIGNAL_PATTERN.source]: "a signal of Linux (signal(7)): `SIGINT`, …, `SIGRTMIN+3`, `SIGRTMAX-1`",
  "^[^\\u0000]*$": "text without NUL",
};

const number = (n: number): string =>
  n === Number.MAX_SAFE_INTEGER ? "2⁵³−1" : n.toLocaleString("en").replaceAll(",", " ");

/** "integer, 1 to 10 000": a schema in words, without the fields of a map. */
function typeOf(s: JsonSchema): string {
  const among = s.anyOf ?? s.oneOf;
  if (among !== undefined) return [...new Set(among.map(typeOf))].join(" or ");
  if (s.format === "binary") return "bytes";
  if (s.const !== undefined) return `\`${JSON.stringify(s.const)}\``;
  if (s.enum !== undefined) return s.enum.map((one) => `\`${JSON.stringify(one)}\``).join(" or ");
  if (s.type === "array") return `list of ${typeOf(s.items ?? {})}${range(s.minItems, s.maxItems, "")}`;
  if (s.type === "object") {
    return s.additionalProperties ? `map of ${typeOf(s.additionalProperties)}` : "map";
  }
  if (s.type === "integer" || s.type === "number") return `${s.type}${range(s.minimum, s.maximum, "")}`;
  if (s.type !== "string") return s.type ?? "anything";
  const named =
    s.pattern === undefined
      ? (s.format ?? "text")
      : (PATTERN_NAMES[s.pattern] ?? `text like \`${s.pattern}\``);
  return named + range(s.minLength, s.maxLength, " characters");
}

function range(min: number | undefined, max: number | undefined, unit: string): string {
  if (min === undefined && max === undefined) return "";
  if (max === undefined || max === Number.MAX_SAFE_INTEGER)
    return min ? `, at least ${number(min)}${unit}` : "";
  return min ? `, ${number(min)} to ${number(max)}${unit}` : `, at most ${number(max)}${unit}`;
}

/** The fields of a map as rows, those of inner maps behind a dot, those of lists behind `[]`. */
function rows(s: JsonSchema, prefix = "", optional = false): string[] {
  const out: string[] = [];
  for (const [name, field] of Object.entries(s.properties ?? {})) {
    const needed = !optional && (s.required?.includes(name) ?? false);
    const standard = field.default === undefined ? "" : `\`${JSON.stringify(field.default)}\``;
    const preset = needed ? "**needed**" : standard;
    // An inner map's rules; the whole one's stand below the table.
    const about = [field.description ?? "", ...(field.checks ?? []).map((check) => `Rule: ${check}.`)];
    const words = cell(about.join(" ").trim());
    out.push(`| \`${prefix}${name}\` | ${cell(typeOf(field))} | ${preset} | ${words} |`);
    const inner = field.type === "array" ? field.items : field;
    const dot = `${prefix}${name}${field.type === "array" ? "[]" : ""}.`;
    if (inner?.properties !== undefined) out.push(...rows(inner, dot));
    for (const variant of inner?.oneOf ?? []) out.push(...variantRow(variant, `${prefix}${name}`));
  }
  return out;
}

/** One alternative of a union, such as an outcome, in one row. */
function variantRow(s: JsonSchema, name: string): string[] {
  const { type, ...rest } = s.properties ?? {};
  const fields = Object.entries(rest).map(([key, field]) => `\`${key}\`: ${typeOf(field)}`);
  return [`| \`${name}.type\` = \`${JSON.stringify(type?.const)}\` | ${cell(fields.join("; "))} | | |`];
}

const cell = (text: string): string => text.replaceAll("|", "\\|").replaceAll("\n", " ");

function table(schema: c.Schema): string {
  const json = jsonSchemaOf(schema);
  const checks = (json.checks ?? []).map((check) => `\nRule: ${check}.\n`).join("");
  return `| field | type | default | |\n|---|---|---|---|\n${rows(json).join("\n")}\n${checks}`;
}

function byHand(room: "sandbox" | "pool", verb: string): string {
  const body = BY_HAND[`${room}.${verb}`];
  if (body === undefined) return "";
  const responder = room === "sandbox" ? BOX : "pool";
  const subject = room === "sandbox" ? c.sandboxSubject(TENANT, BOX, verb) : c.poolSubject(TENANT, verb);
  const prefix = `--inbox-prefix=${c.replyPrefix(TENANT, responder, "me")}`;
  return `\n\`\`\`sh\nnats req ${prefix} ${subject} '${JSON.stringify(body)}'\n\`\`\`\n`;
}

function answerOf(verb: c.Verb): string {
  if (!("frames" in verb.answer)) return `Answer:\n\n${table(verb.answer)}`;
  const names = verb.answer.frames.map((frame) => `\`${frameName(frame)}\``);
  return `Answered by [frames](#frames): ${names.join(", ")}.\n`;
}

const frameName = (schema: c.Schema): string => String(jsonSchemaOf(schema).properties?.type?.const);

function verbSection(room: "sandbox" | "pool", name: string, verb: c.Verb): string {
  const request = `Request:\n\n${table(verb.request)}`;
  return `### ${name}\n\n${verb.about}.\n${byHand(room, name)}\n${request}\n${answerOf(verb)}`;
}

const errors = Object.entries(c.ERROR_CLASSES)
  .map(([code, Class]) => `| \`${code}\` | ${Class.name} | ${new Class("").retryable ? "yes" : "no"} |`)
  .join("\n");

export function reference(): string {
  const sections = (room: "sandbox" | "pool", verbs: Record<string, c.Verb>) =>
    Object.entries(verbs).map(([name, verb]) => verbSection(room, name, verb));
  const frames = [c.ChunkFrame, c.StartedFrame, c.EndFrame, c.FileEndFrame].map(
    (frame) => `### ${frameName(frame)}\n\n${table(frame)}`,
  );
  const control = Object.entries(c.CONTROL_VERBS).map(([name, schema]) => `### ${name}\n\n${table(schema)}`);
  return `${[
    "# The wire",
    "Generated by `bun broker/contract/reference.ts` from the schemas in this folder; do not edit.",
    INTRODUCTION,
    "## Subjects",
    `| subject | published by | received by |\n|---|---|---|\n${SUBJECTS.map((row) => `| ${row.join(" | ")} |`).join("\n")}`,
    "## Verbs of a sandbox",
    `Subject \`sbx.v1.<tenant>.<sandbox>.<verb>\`.`,
    ...sections("sandbox", c.SANDBOX_VERBS),
    `### credit\n\nPublished without waiting for an answer.\n\n${table(c.CreditRequest)}`,
    SH,
    "## Frames",
    "Answers of several messages: the last one ends it.",
    ...frames,
    "## Verbs of the pool",
    `Subject \`pool.v1.<tenant>.<verb>\`.`,
    ...sections("pool", c.POOL_VERBS),
    "## The pool's words to a daemon",
    `Subject \`ctl.v1.<tenant>.<sandbox>.<verb>\`, without an answer.`,
    ...control,
    "## Enrolment and events",
    `### enrolment\n\nSubject \`enr.v1.<tenant>.<sandbox>\`, once.\n\n${table(c.ENROL.request)}\n${answerOf(c.ENROL)}`,
    `### ready\n\nSubject \`evt.v1.<tenant>.sbx.<sandbox>.ready\`.\n\n${table(c.Ready)}`,
    `### events\n\nSubjects \`evt.v1.<tenant>.pool.<what>\` and \`evt.v1.<tenant>.run.<run>.<what>\`.\n\n${table(c.PoolEvent)}`,
    "## Outcomes",
    `| outcome | fields |\n|---|---|\n${(jsonSchemaOf(Outcome).oneOf ?? []).map(outcomeRow).join("\n")}`,
    "## Errors",
    ERRORS,
    `| code | class | retryable |\n|---|---|---|\n${errors}`,
  ]
    .map((part) => part.trim())
    .join("\n\n")}\n`;
}

function outcomeRow(s: JsonSchema): string {
  const { type, ...rest } = s.properties ?? {};
  const fields = Object.entries(rest).map(([key, field]) => `\`${key}\` (${typeOf(field)})`);
  return `| \`${String(type?.const)}\` | ${cell(fields.join(", "))} |`;
}

const INTRODUCTION = `Messages are MessagePack maps. A body that is no such map, as one that begins with \`{\`, is JSON and is answered in JSON, so that the
nats CLI is enough; binary fields are \`bin\` in MessagePack and base64 in JSON. Unknown fields are ignored (those of an
acquire's spec are named in the grant's \`warnings\`); a wrong
type, a value out of range or another \`version\` is refused with \`invalid_request\`, which names the field. A message
has at most ${number(c.MAX_MESSAGE_BYTES)} bytes, a chunk ${number(c.MAX_CHUNK_BYTES)}, what an end frame carries of each stream ${number(c.MAX_INLINE_BYTES)}.

An **id** is 1 to 63 of \`a-z\`, \`0-9\` and \`-\`, and starts with a letter or digit. Requests to a sandbox may carry
\`lease\`, \`generation\` and \`incarnation\`, which are compared: a command meant for what was there before is refused
with \`lease_lost\` and \`started: "no"\`.

Answers go to \`rep.v1.<tenant>.<responder>.<user>.<token>\` and nowhere else: who is asked to answer elsewhere, or in
another responder's place, drops the request (the nats CLI waits its time then, prints nothing, and exits with 0). The examples are of the user \`me\` of the
tenant \`${TENANT}\`, and need \`--creds\`; \`sandmesh context\` writes a nats context that has all that.`;

const SH = `### sh

For people: the body is a shell line as it is, the answer its merged output as it is, at most ${number(c.MAX_INLINE_BYTES)} bytes. Headers of
the answer: \`Sandmesh-Outcome\`, \`Sandmesh-Status\` (as a shell would report it), \`Sandmesh-Dropped-Bytes\` where cut,
\`Sandmesh-Error\` where it could not run. The request's header \`Timeout-Ms\` limits it.

\`\`\`sh
nats req --inbox-prefix=${c.replyPrefix(TENANT, BOX, "me")} ${c.sandboxSubject(TENANT, BOX, "sh")} 'uname -a; id'
\`\`\``;

const ERRORS = `An answer that is an error is a map with the key \`error\`: \`code\`, \`message\`, \`retryable\`, and where it is known
\`field\`, \`sandbox\`, \`reason\` and \`started\` (\`no\`, \`yes\` or \`unknown\`: whether the command had been started). One class
per code, the same in every SDK. \`retryable\`: the same request, sent later, can succeed without anyone changing
anything.`;

if (import.meta.main) writeFileSync(join(import.meta.dir, "REFERENCE.md"), reference());
