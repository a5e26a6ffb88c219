// A message as it came, decoded as far as it is asked for.
import { InvalidRequestError } from "../contract/core.ts";
import type { Message } from "./link.ts";
import type { MsgArg } from "./protocol.ts";

const HEADER_LINE = "NATS/1.0";
const NO_BYTES = new Uint8Array(0);

export type Respond = (reply: string, data: Uint8Array, headers: Record<string, string> | undefined) => void;

function text(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("latin1");
}

export class LinkMessage implements Message {
  readonly #arg: MsgArg;
  readonly #raw: Uint8Array;
  readonly #respond: Respond;
  #subject: string | undefined;
  #headers: Map<string, string> | undefined;

  constructor(arg: MsgArg, raw: Uint8Array, respond: Respond) {
    this.#arg = arg;
    this.#raw = raw;
    this.#respond = respond;
  }

  get subject(): string {
    this.#subject ??= text(this.#arg.subject);
    return this.#subject;
  }

  get reply(): string | undefined {
    const { reply } = this.#arg;
    return reply === undefined || reply.length === 0 ? undefined : text(reply);
  }

  get data(): Uint8Array {
    const { hdr } = this.#arg;
    return hdr > 0 ? this.#raw.subarray(hdr) : this.#raw;
  }

  /** By name, in any case. `Status` is the code that the server itself answers with, such as 503. */
  header(name: string): string | undefined {
    const { hdr } = this.#arg;
    if (hdr <= 0) return undefined;
    this.#headers ??= parseHeaders(Buffer.from(this.#raw.buffer, this.#raw.byteOffset, hdr).toString("utf8"));
    return this.#headers.get(name.toLowerCase());
  }

  respond(data: Uint8Array, headers?: Record<string, string>): void {
    const { reply } = this;
    if (reply !== undefined) this.#respond(reply, data, headers);
  }
}

/** Whether the server itself says that nobody listens there: status 503, no body. */
export function isNoResponders(arg: MsgArg, raw: Uint8Array): boolean {
  if (arg.hdr <= 0 || raw.length !== arg.hdr) return false;
  return text(raw.subarray(0, HEADER_LINE.length + 4)) === `${HEADER_LINE} 503`;
}

function parseHeaders(block: string): Map<string, string> {
  const [first = "", ...lines] = block.split("\r\n");
  const headers = new Map<string, string>();
  for (const line of lines) {
    const colon = line.indexOf(":");
    const name = line.slice(0, colon).toLowerCase();
    if (colon > 0 && !headers.has(name)) headers.set(name, line.slice(colon + 1).trim());
  }
  const status = /^NATS\/1\.0 (\d{3})/.exec(first)?.[1];
  if (status !== undefined) headers.set("status", status);
  return headers;
}

/** Throws InvalidRequestError with field "headers" for what would break out of its line. */
export function formatHeaders(headers: Record<string, string> | undefined): Uint8Array | undefined {
  if (headers === undefined) return undefined;
  let block = `${HEADER_LINE}\r\n`;
  for (const [name, value] of Object.entries(headers)) {
    if (!/^[\x21-\x39\x3b-\x7e]+$/.test(name) || /[\r\n]/.test(value)) {
      throw new InvalidRequestError(`header ${JSON.stringify(name)} is not valid`, { field: "headers" });
    }
    block += `${name}: ${value}\r\n`;
  }
  return Buffer.from(`${block}\r\n`);
}

export const EMPTY: Uint8Array = NO_BYTES;
