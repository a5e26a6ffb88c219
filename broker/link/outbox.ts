// What goes out: checked, sent, or held while the connection is away.
import { ConnectionError, InvalidRequestError, TooLargeError } from "../contract/core.ts";
import { type LinkProtocol, lengthOf } from "./protocol.ts";

/** What may wait for the connection to come back; past it, publishing throws. */
const MAX_HELD_BYTES = 16 * 1024 * 1024;
/** Until the server has said otherwise. */
const DEFAULT_MAX_PAYLOAD = 1024 * 1024;
/** White space would break out of the protocol's line. */
const SUBJECT = /^[\x21-\x7e]+$/;

interface Held {
  subject: string;
  reply: string | undefined;
  headers: Uint8Array | undefined;
  data: Uint8Array;
}

/** Throws InvalidRequestError naming `field`. */
export function checkSubject(subject: string, field = "subject"): void {
  if (SUBJECT.test(subject)) return;
  throw new InvalidRequestError(`${field} ${JSON.stringify(subject)} is not valid`, { field });
}

const NOTHING: readonly Uint8Array[] = [];

export class Outbox {
  readonly #protocol: LinkProtocol;
  #held: Held[] = [];
  #heldBytes = 0;

  constructor(protocol: LinkProtocol) {
    this.#protocol = protocol;
  }

  get maxPayload(): number {
    return this.#protocol.info?.max_payload ?? DEFAULT_MAX_PAYLOAD;
  }

  /** Throws InvalidRequestError, TooLargeError, or ConnectionError where too much waits already. */
  send(
    subject: string,
    reply: string | undefined,
    headers: Uint8Array | undefined,
    data: Uint8Array,
    tail: readonly Uint8Array[] = NOTHING,
  ): void {
    checkSubject(subject);
    if (reply !== undefined) checkSubject(reply, "reply");
    const bytes = data.length + lengthOf(tail) + (headers?.length ?? 0);
    if (bytes > this.maxPayload) {
      throw new TooLargeError(`a message of ${bytes} bytes; the server takes ${this.maxPayload}`, {
        field: "body",
      });
    }
    if (this.#protocol.connected && this.#held.length === 0) {
      this.#protocol.emit(subject, reply, headers, data, tail);
      return;
    }
    // The package would throw it away at its next dial.
    if (this.#heldBytes + bytes > MAX_HELD_BYTES) {
      throw new ConnectionError(`the connection is away, and ${MAX_HELD_BYTES} bytes wait for it already`);
    }
    this.#heldBytes += bytes;
    this.#held.push({ subject, reply, headers, data: Buffer.concat([data, ...tail]) });
  }

  /** Sends what was held, in order. */
  release(): void {
    const held = this.#held;
    this.#held = [];
    this.#heldBytes = 0;
    for (const { subject, reply, headers, data } of held)
      this.#protocol.emit(subject, reply, headers, data, NOTHING);
  }
}
