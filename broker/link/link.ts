// The link to NATS as the rest of sandmesh sees it. This folder is the only one that imports the npm package `nats`.
// `connect` stands in connect.ts.

import type { ConnectionError, SandmeshError } from "../contract/core.ts";

export interface Message {
  readonly subject: string;
  readonly data: Uint8Array;
  readonly reply: string | undefined;
  header(name: string): string | undefined;
  /** Answers on the reply subject; nothing where there is none. */
  respond(data: Uint8Array, headers?: Record<string, string>): void;
}

export interface Subscription {
  unsubscribe(): void;
}

export interface SubscribeOptions {
  queue?: string;
  /** Called once where the server refuses it, which ends it: with PermissionDeniedError (reason `subscribe`), also where the
   * connection has as many as it may have. Left out: the link's `onError` is told. */
  refused?: (error: SandmeshError) => void;
}

export interface RequestOptions {
  /** Until the first answer (and, for a stream, between two); ms. */
  timeoutMs: number;
  signal?: AbortSignal;
  headers?: Record<string, string>;
  /** As `publish` has it. */
  tail?: readonly Uint8Array[];
  /** Of `request`, where the connection is lost while it waits: how long after the return of the connection the answer is
   * waited for, since it may be lost, ms. Left out: until `timeoutMs`. */
  afterCutMs?: number | undefined;
}

export interface AnswerStream extends AsyncIterable<Message> {
  /** The token of the reply subject (`parseSubject(reply).token`; it has a dot): the reader's name in `credit`. */
  readonly token: string;
  close(): void;
}

/** One connection. All its requests are answered on one wildcard subscription, `rep.v1.<tenant>.*.<user>.<own>.>`: own
 * to the connection, so that the answers of a user with many connections do not all come to each of them. */
export interface Link {
  readonly tenant: string;
  readonly user: string;
  /** What the server said that a message may be at most. */
  readonly maxPayload: number;
  /** Throws InvalidRequestError, TooLargeError (maxPayload), ConnectionError (closed, or more than 16 MiB waiting while
   * the connection is away). The bytes must not be changed in the same turn of the event loop; those
   * of `tail`, which come behind `data` in the same message and are not copied, not before `idle`. */
  publish(
    subject: string,
    data: Uint8Array,
    options?: { reply?: string; headers?: Record<string, string>; tail?: readonly Uint8Array[] },
  ): void;
  /** Whether the connection has taken all that was published: the bytes of a `tail` may be changed then, too. */
  readonly idle: boolean;
  /** `handle` is called in order of arrival; what it throws is logged, and ends nothing. */
  subscribe(subject: string, handle: (message: Message) => void, options?: SubscribeOptions): Subscription;
  /** One answer. `responder` is the sandbox's id or "pool". Throws UnreachableError (nobody listens: at once),
   * DeadlineError, CanceledError, ConnectionError. */
  request(responder: string, subject: string, data: Uint8Array, options: RequestOptions): Promise<Message>;
  /** Many answers, until `close`. Throws like `request`, at the iteration. */
  stream(responder: string, subject: string, data: Uint8Array, options: RequestOptions): AnswerStream;
  /** Resolves when the server has everything that was published or subscribed so far. */
  flush(): Promise<void>;
  /** Called at each loss (false) and return (true) of the connection. Returns what takes it back. */
  onStatus(handle: (connected: boolean) => void): () => void;
  /** For how long the server has been away, ms; 0 while it is there. */
  readonly awayMs: number;
  /** Set where the server has been away for `goneAfterMs` (reason `server_gone`), until it is back: what all that is
   * asked, and all that was under way then, fails with. */
  readonly gone: ConnectionError | undefined;
  /** Calls `handle` whenever `gone` is set. Returns what takes it back. */
  onGone(handle: () => void): () => void;
  /** Rejects nothing; resolves when closed for good, with the reason if it was not by `close`. */
  readonly closed: Promise<Error | undefined>;
  close(): Promise<void>;
}
