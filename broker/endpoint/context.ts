// What the parts of one endpoint share: who it is, and how it answers.
import {
  type Encoding,
  encode,
  encodeAhead,
  InternalError,
  MAX_CHUNK_BYTES,
  MAX_INLINE_BYTES,
  SandmeshError,
} from "../contract/index.ts";
import type { Link } from "../link/link.ts";
import type { Deadlines } from "./alarm.ts";
import type { StreamName } from "./flow.ts";
import type { Log } from "./log.ts";

/** Where the answer to a request goes, and in which encoding. */
export interface Reply {
  subject: string;
  encoding: Encoding;
}

/** From here on copying costs more than writing in parts. */
const LARGE_BYTES = 16 * 1024;
/** What an answer's fields take beside its data. */
const ENVELOPE_BYTES = 4096;

export interface Counters {
  requests: number;
  /** Without a reply subject, or with one that is not an answer subject: nothing was run. */
  unanswerable: number;
  errors: number;
  /** Answers that could not be published; what a command did stays in its record. */
  unsent: number;
}

export class Context {
  readonly tenant: string;
  readonly sandbox: string;
  readonly incarnation: string;
  readonly link: Link;
  readonly log: Log;
  readonly deadlines: Deadlines;
  readonly now: () => number;
  readonly counters: Counters = { requests: 0, unanswerable: 0, errors: 0, unsent: 0 };
  /** Once true nothing more is published. */
  over = false;
  /** Whether the server is there, as far as is known. */
  connected = true;

  constructor(parts: {
    tenant: string;
    sandbox: string;
    incarnation: string;
    link: Link;
    log: Log;
    deadlines: Deadlines;
    now: () => number;
  }) {
    this.tenant = parts.tenant;
    this.sandbox = parts.sandbox;
    this.incarnation = parts.incarnation;
    this.link = parts.link;
    this.log = parts.log;
    this.deadlines = parts.deadlines;
    this.now = parts.now;
  }

  /** Publishes one answer or frame; false where it could not be. */
  answer(reply: Reply, message: object): boolean {
    if (this.over) return false;
    try {
      this.link.publish(reply.subject, encode(message, reply.encoding));
      return true;
    } catch (thrown) {
      return this.#unsent(reply, thrown);
    }
  }

  /** A frame whose last field is of `length` bytes, in parts that are not changed any more: not copied where it is
   * large. */
  chunk(
    reply: Reply,
    frame: { id: string; stream: StreamName; offset: number },
    data: readonly Uint8Array[],
    length: number,
  ): boolean {
    const message = { type: "chunk", ...frame };
    if (reply.encoding === "json" || length < LARGE_BYTES)
      return this.answer(reply, { ...message, data: data.length === 1 ? data[0] : Buffer.concat(data) });
    if (this.over) return false;
    try {
      this.link.publish(reply.subject, encodeAhead(message, "data", length), { tail: data });
      return true;
    } catch (thrown) {
      return this.#unsent(reply, thrown);
    }
  }

  answerRaw(reply: Reply, data: Uint8Array, headers: Record<string, string>): boolean {
    if (this.over) return false;
    try {
      this.link.publish(reply.subject, data, { headers });
      return true;
    } catch (thrown) {
      return this.#unsent(reply, thrown);
    }
  }

  #unsent(reply: Reply, thrown: unknown): false {
    this.counters.unsent++;
    const error = errorOf(thrown, "an answer");
    this.log.warn(
      { sandbox: this.sandbox, code: error.code, error: error.message },
      "an answer was not sent",
    );
    // What did not fit, or had a value that cannot be encoded, must not leave the caller without an answer.
    if (error.code === "too_large" || error.code === "internal") {
      try {
        this.link.publish(reply.subject, encode({ error: error.toWire() }, reply.encoding));
      } catch {
        // The link is gone, which was logged.
      }
    }
    return false;
  }

  refuse(reply: Reply, thrown: unknown, what: string): void {
    this.counters.errors++;
    const error = errorOf(thrown, what);
    if (error instanceof InternalError) {
      this.log.error(
        { sandbox: this.sandbox, what, error: error.cause ?? error },
        "a fault of the daemon's own",
      );
    }
    this.answer(reply, { error: error.toWire() });
  }

  /** Of each stream in an end frame that has both. */
  inlineBytes(encoding: Encoding): number {
    return Math.min(MAX_INLINE_BYTES, Math.floor(this.#room(encoding) / 2));
  }

  chunkBytes(encoding: Encoding): number {
    return Math.min(MAX_CHUNK_BYTES, this.#room(encoding));
  }

  #room(encoding: Encoding): number {
    const room = Math.max(1024, this.link.maxPayload - ENVELOPE_BYTES);
    return encoding === "json" ? Math.floor(room / 4) * 3 : room;
  }
}

/** What was thrown as an error that may cross the wire; anything unexpected is a fault of the daemon's own. */
export function errorOf(thrown: unknown, what: string): SandmeshError {
  if (thrown instanceof SandmeshError) return thrown;
  const why = thrown instanceof Error ? thrown.message : String(thrown);
  return new InternalError(`the daemon failed at ${what}: ${why}`, { cause: thrown });
}
