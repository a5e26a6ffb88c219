// What a command is, apart from who asks for it and how it is read: two requests of one id must agree in it. Pure.
import { createHash } from "node:crypto";
import { check, ExecRequest } from "../contract/index.ts";
import type { ParsedExec } from "./executor.ts";

/** A digest of 44 characters. */
export function contentOf(request: ParsedExec): string {
  const { version, lease, generation, incarnation, id, credit_bytes, reader, detach, stdin, ...content } =
    request;
  const hash = createHash("sha256").update(JSON.stringify(content, sorted));
  if (stdin !== undefined) hash.update("\0stdin\0").update(stdin);
  return hash.digest("base64");
}

/** Two callers' maps may have their keys in another order. */
function sorted(_key: string, value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));
}

const ENVELOPE = new Set([
  "version",
  "lease",
  "generation",
  "incarnation",
  "id",
  "credit_bytes",
  "reader",
  "detach",
]);
let unsaid: Readonly<Record<string, unknown>> | undefined;

/** A request without stdin as text, for `sameContent`: made faster than a digest, which is needed at a repetition only, and
 * without what a request need not say, since thousands are remembered. */
export function textOf(request: ParsedExec): string {
  unsaid ??= check(ExecRequest, { argv: [""] });
  const said: Record<string, unknown> = {};
  // Each command pays for this: Object.entries takes twice as long.
  let key: keyof ParsedExec;
  for (key in request) if (unsaid[key] !== request[key] && !ENVELOPE.has(key)) said[key] = request[key];
  return JSON.stringify(said);
}

/** `first` is a request, `textOf` it, or `contentOf` it. */
export function sameContent(first: ParsedExec | string, again: ParsedExec): boolean {
  const digest =
    typeof first !== "string"
      ? contentOf(first)
      : first.startsWith("{")
        ? contentOf(check(ExecRequest, JSON.parse(first)))
        : first;
  return digest === contentOf(again);
}
