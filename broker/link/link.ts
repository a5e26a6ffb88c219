// The link to NATS as the rest of sandmesh sees it. This folder is the only one that imports the npm package `nats`.
// `connect` stands in connect.ts.

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

export interface RequestOptions {
  /** Until the first answer (and, for a stream, between two); ms. */
  timeoutMs: number;
  signal?: AbortSignal;
  headers?: Record<string, string>;
}

export interface AnswerStream extends AsyncIterable<Message> {
  /** The token that stands last in the reply subject: the reader's name in `credit`. */
  readonly token: string;
  close(): void;
}

/** One connection. All its requests are answered on one wildcard subscription `rep.v1.<tenant>.*.<user>.>`. */
export interface Link {
  readonly tenant: string;
  readonly user: string;
  /** What the server said that a message may be at most. */
  readonly maxPayload: number;
  publish(
    subject: string,
    data: Uint8Array,
    options?: { reply?: string; headers?: Record<string, string> },
  ): void;
  /** `handle` is called in order of arrival; what it throws is logged, and ends nothing. */
  subscribe(subject: string, handle: (message: Message) => void, options?: { queue?: string }): Subscription;
  /** One answer. `responder` is the sandbox's id or "pool". Throws UnreachableError (nobody listens: at once),
   * DeadlineError, CanceledError, ConnectionError. */
  request(responder: string, subject: string, data: Uint8Array, options: RequestOptions): Promise<Message>;
  /** Many answers, until `close`. Throws like `request`, at the iteration. */
  stream(responder: string, subject: string, data: Uint8Array, options: RequestOptions): AnswerStream;
  /** Resolves when the server has everything that was published or subscribed so far. */
  flush(): Promise<void>;
  /** Called at each loss (false) and return (true) of the connection. */
  onStatus(handle: (connected: boolean) => void): void;
  /** Rejects nothing; resolves when closed for good, with the reason if it was not by `close`. */
  readonly closed: Promise<Error | undefined>;
  close(): Promise<void>;
}
