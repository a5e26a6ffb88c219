// Connects to NATS: `connect` answers a Link (link.ts). Works in Bun and Node, also over a unix socket.
import { randomBytes } from "node:crypto";
import type { NatsError } from "nats/lib/nats-base-client/core.js";
import {
  CanceledError,
  ConnectionError,
  InvalidRequestError,
  PermissionDeniedError,
  type SandmeshError,
  TooLargeError,
} from "../contract/index.ts";
import { authenticatorFor, type Credentials, type Identity, identityOf } from "../credentials/index.ts";
import { Deadlines } from "./deadlines.ts";
import type { AnswerStream, Link, Message, RequestOptions, Subscription } from "./link.ts";
import { formatHeaders, isNoResponders, LinkMessage, type Respond } from "./message.ts";
import { LinkProtocol, type MsgArg, type ReconnectDelays } from "./protocol.ts";
import { closedError, lastNumber, Requests, SingleRequest } from "./requests.ts";
import { Answers } from "./stream.ts";

export interface ConnectOptions {
  /** `nats://host:port` or `tls://host:port`; tried in this order. */
  urls: readonly string[];
  /** Asked anew at each (re)connect where it is a function. */
  credentials: Credentials | (() => Credentials);
  /** Shown in the server's lists of connections. */
  name?: string;
  /** The JWT's tag, where left out. Empty for the pool, which serves all. */
  tenant?: string;
  /** The JWT's tag, where left out; a bootstrap's is its sandbox, the pool's is "pool". */
  user?: string;
  /** Path of a unix socket that leads to NATS. */
  relay?: string;
  /** PEM of the CA that signed the server's certificate; TLS is required then. */
  ca?: string;
  /** How long `connect` tries in all, ms. */
  connectTimeoutMs?: number;
  /** Goes on trying within connectTimeoutMs while no server is there, instead of failing at the first refusal. */
  patient?: boolean;
  reconnect?: Partial<ReconnectDelays>;
  /** What cannot be thrown at anyone: a handler's throw, a refused subscription. Written to stderr by default. */
  onError?: (error: unknown, what: string) => void;
}

const DEFAULT_CONNECT_TIMEOUT_MS = 10_000;
const DEFAULT_DELAYS: ReconnectDelays = { firstMs: 200, baseMs: 1_000, maxMs: 5_000 };
const PING_INTERVAL_MS = 15_000;
/** What may wait for the connection to come back; past it, publishing throws. */
const MAX_HELD_BYTES = 16 * 1024 * 1024;
const SUBJECT = /^[\x21-\x7e]+$/;

/** Connects. Throws ConnectionError (nobody there, no TLS, timed out), PermissionDeniedError (the credential is
 * refused: wrong, expired or revoked) or InvalidRequestError (`urls`, `jwt`, `seed`). */
export async function connect(options: ConnectOptions): Promise<Link> {
  const link = new NatsLink(options);
  await link.open();
  return link;
}

/** What a role's answers come on: `prefix` and `suffix` of the reply subject stand around the responder. */
interface Replies {
  wildcard: string;
  user: string;
}

function repliesOf(tenant: string, user: string, connection: string): Replies {
  const of = tenant === "" ? "*" : tenant;
  // A bootstrap may hear the pool only, and the wildcard would be refused.
  return { wildcard: `rep.v1.${of}.*.${user}.${connection}.>`, user: `${user}.${connection}` };
}

interface Held {
  subject: string;
  reply: string | undefined;
  headers: Uint8Array | undefined;
  data: Uint8Array;
}

class NatsLink implements Link {
  readonly tenant: string;
  readonly user: string;
  readonly closed: Promise<Error | undefined>;
  readonly #options: ConnectOptions;
  readonly #protocol: LinkProtocol;
  readonly #requests = new Requests(new Deadlines());
  readonly #replies: Replies;
  /** Random, so that the answers of one user's several connections do not all come to each of them. */
  readonly #connection = randomBytes(5).toString("hex");
  readonly #statusHandlers: ((connected: boolean) => void)[] = [];
  readonly #returns: (() => void)[] = [];
  #repliesOpen = false;
  #held: Held[] = [];
  #heldBytes = 0;
  #up = false;
  /** Ended by `close`, or on the way there. */
  #closing = false;
  /** Why the server last refused the credential, until it takes it again. */
  #refused: string | undefined;
  #closedWith!: (reason: Error | undefined) => void;

  constructor(options: ConnectOptions) {
    const { credentials } = options;
    const current = typeof credentials === "function" ? credentials : () => credentials;
    const identity = identityOf(current().jwt);
    this.#options = options;
    this.tenant = options.tenant ?? identity.tenant ?? "";
    this.user = options.user ?? userOf(identity);
    this.#replies = repliesOf(this.tenant, this.user, this.#connection);
    if (identity.role === "bootstrap") {
      this.#replies.wildcard = `rep.v1.${this.tenant}.pool.${this.user}.${this.#connection}.>`;
    }
    this.closed = new Promise((resolve) => {
      this.#closedWith = resolve;
    });
    const { urls, relay, ca, name, reconnect } = options;
    if (urls.length === 0) throw new InvalidRequestError("urls must not be empty", { field: "urls" });
    this.#protocol = new LinkProtocol(
      {
        servers: checkUrls(urls),
        authenticator: authenticatorFor(current),
        name: name ?? `${identity.role} ${identity.user ?? identity.sandbox ?? ""}`.trim(),
        timeout: options.connectTimeoutMs ?? DEFAULT_CONNECT_TIMEOUT_MS,
        reconnect: true,
        maxReconnectAttempts: -1,
        waitOnFirstConnect: options.patient === true,
        pingInterval: PING_INTERVAL_MS,
        maxPingOut: 2,
        noRandomize: true,
        ignoreClusterUpdates: true,
        ignoreAuthErrorAbort: true,
        noAsyncTraces: true,
        // The system's resolver (and /etc/hosts) is asked at each dial, not the package's own.
        resolve: false,
        ...(ca === undefined && !urls[0]?.startsWith("tls:") ? {} : { tls: {} }),
      },
      { relay, ca },
      { ...DEFAULT_DELAYS, ...reconnect },
      {
        disconnected: () => this.#disconnected(),
        reconnected: () => this.#reconnected(),
        failed: (error) => this.#serverError(error),
      },
    );
    this.#protocol.closed.then((reason) => this.#ended(reason instanceof Error ? reason : undefined));
  }

  async open(): Promise<void> {
    const timeoutMs = this.#options.connectTimeoutMs ?? DEFAULT_CONNECT_TIMEOUT_MS;
    const where = this.#options.relay ?? this.#options.urls.join(", ");
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Error(`no connection within ${timeoutMs} ms`)), timeoutMs);
    });
    try {
      await Promise.race([this.#protocol.dialLoop(), late]);
      this.#up = true;
    } catch (cause) {
      this.#closing = true;
      await this.#protocol.close();
      throw this.#connectError(cause, where);
    } finally {
      clearTimeout(timer);
    }
  }

  #connectError(cause: unknown, where: string): SandmeshError {
    if (this.#refused !== undefined) return this.#refusedError();
    const why = cause instanceof Error ? cause.message : String(cause);
    return new ConnectionError(`no NATS server to be had at ${where}: ${why}`, { cause });
  }

  #refusedError(): SandmeshError {
    return new PermissionDeniedError(`the server refuses the credential: ${this.#refused}`, {
      reason: "credential",
    });
  }

  get maxPayload(): number {
    return this.#protocol.info?.max_payload ?? 1024 * 1024;
  }

  publish(
    subject: string,
    data: Uint8Array,
    options?: { reply?: string; headers?: Record<string, string> },
  ): void {
    this.#send(subject, options?.reply, formatHeaders(options?.headers), data);
  }

  #send(subject: string, reply: string | undefined, headers: Uint8Array | undefined, data: Uint8Array): void {
    if (this.#closing) throw closedError();
    if (!SUBJECT.test(subject)) {
      throw new InvalidRequestError(`subject ${JSON.stringify(subject)} is not valid`, { field: "subject" });
    }
    if (reply !== undefined && !SUBJECT.test(reply)) {
      throw new InvalidRequestError(`reply ${JSON.stringify(reply)} is not valid`, { field: "reply" });
    }
    const bytes = data.length + (headers?.length ?? 0);
    if (bytes > this.maxPayload) {
      throw new TooLargeError(`a message of ${bytes} bytes; the server takes ${this.maxPayload}`, {
        field: "body",
      });
    }
    if (this.#protocol.connected) this.#protocol.emit(subject, reply, headers, data);
    else this.#hold({ subject, reply, headers, data }, bytes);
  }

  /** While the connection is away. The package would throw such messages away at its next dial. */
  #hold(held: Held, bytes: number): void {
    if (this.#heldBytes + bytes > MAX_HELD_BYTES) {
      throw new ConnectionError(`the connection is away, and ${MAX_HELD_BYTES} bytes wait for it already`);
    }
    this.#heldBytes += bytes;
    this.#held.push(held);
  }

  subscribe(subject: string, handle: (message: Message) => void, options?: { queue?: string }): Subscription {
    if (this.#closing) throw closedError();
    if (!SUBJECT.test(subject)) {
      throw new InvalidRequestError(`subject ${JSON.stringify(subject)} is not valid`, { field: "subject" });
    }
    const stop = this.#protocol.listen(subject, options?.queue, (arg, raw) => {
      try {
        handle(new LinkMessage(arg, raw, this.#respond));
      } catch (error) {
        this.#report(error, `a handler of ${subject}`);
      }
    });
    return { unsubscribe: stop };
  }

  readonly #respond: Respond = (reply, data, headers) =>
    this.#send(reply, undefined, formatHeaders(headers), data);

  async request(
    responder: string,
    subject: string,
    data: Uint8Array,
    options: RequestOptions,
  ): Promise<Message> {
    this.#begin(options.signal);
    const { timeoutMs, signal } = options;
    const pending = new SingleRequest(this.#requests, responder, subject, timeoutMs, signal);
    this.#ask(pending, responder, subject, data, options);
    return pending.promise;
  }

  stream(responder: string, subject: string, data: Uint8Array, options: RequestOptions): AnswerStream {
    this.#begin(undefined);
    const { timeoutMs, signal } = options;
    const tokenOf = (number: number) => `${this.#connection}.${number.toString(36)}`;
    const pending = new Answers(this.#requests, responder, subject, timeoutMs, signal, tokenOf);
    if (signal?.aborted) pending.failed(canceledBefore());
    else this.#ask(pending, responder, subject, data, options);
    return pending;
  }

  #begin(signal: AbortSignal | undefined): void {
    if (this.#closing) throw closedError();
    if (signal?.aborted) throw canceledBefore();
    if (this.#refused !== undefined && !this.#protocol.connected) throw this.#refusedError();
    if (!this.#repliesOpen) {
      // In front of the request on the same connection: the server has it before it has the request.
      this.#repliesOpen = true;
      this.#protocol.listen(this.#replies.wildcard, undefined, this.#answered);
    }
  }

  #ask(
    pending: SingleRequest | Answers,
    responder: string,
    subject: string,
    data: Uint8Array,
    options: RequestOptions,
  ): void {
    const tenant = this.tenant === "" ? (subject.split(".", 3)[2] ?? "") : this.tenant;
    const reply = `rep.v1.${tenant}.${responder}.${this.#replies.user}.${pending.number.toString(36)}`;
    try {
      this.#send(subject, reply, formatHeaders(options.headers), data);
    } catch (error) {
      pending.failed(error as SandmeshError);
    }
  }

  readonly #answered = (arg: MsgArg, raw: Uint8Array): void => {
    const pending = this.#requests.find(lastNumber(arg.subject));
    if (pending === undefined) return; // came after its deadline
    if (isNoResponders(arg, raw)) pending.unanswerable();
    else pending.answered(new LinkMessage(arg, raw, this.#respond));
  };

  async flush(): Promise<void> {
    if (this.#closing) throw closedError();
    if (!this.#protocol.connected) await new Promise<void>((back) => this.#returns.push(back));
    if (this.#closing) throw closedError();
    try {
      await this.#protocol.flush();
    } catch (cause) {
      throw new ConnectionError("the connection was lost before the server had all of it", { cause });
    }
  }

  onStatus(handle: (connected: boolean) => void): void {
    this.#statusHandlers.push(handle);
  }

  #tellStatus(connected: boolean): void {
    if (this.#up === connected) return;
    this.#up = connected;
    for (const handle of this.#statusHandlers) {
      try {
        handle(connected);
      } catch (error) {
        this.#report(error, "a handler of onStatus");
      }
    }
  }

  #disconnected(): void {
    if (!this.#closing) this.#tellStatus(false);
  }

  #reconnected(): void {
    this.#refused = undefined;
    const held = this.#held;
    this.#held = [];
    this.#heldBytes = 0;
    for (const { subject, reply, headers, data } of held) this.#protocol.emit(subject, reply, headers, data);
    for (const back of this.#returns.splice(0)) back();
    this.#tellStatus(true);
  }

  #serverError(error: NatsError): void {
    if (error.isAuthError()) {
      this.#refused = error.message;
      // The cut itself (an expiry) leaves hope: the next credential may be a newer one. A refused reconnect does not.
      if (!this.#protocol.connected) this.#requests.fail(() => this.#refusedError());
      return;
    }
    const refused = /(Publish|Subscription)(?: with .*)? to "([^"]+)"/i.exec(error.message);
    if (!error.isPermissionError() || refused === null) {
      this.#report(error, "the server");
      return;
    }
    const [, operation = "", subject = ""] = refused;
    const denied = () =>
      new PermissionDeniedError(
        `this credential may not ${operation === "Publish" ? "publish to" : "subscribe"} ${subject}`,
        {
          reason: operation.toLowerCase(),
        },
      );
    if (subject === this.#replies.wildcard) this.#requests.fail(denied);
    else if (operation === "Publish") this.#requests.fail(denied, subject);
    if (this.#options.onError !== undefined || operation !== "Publish") this.#report(denied(), "the server");
  }

  #report(error: unknown, what: string): void {
    if (this.#options.onError !== undefined) this.#options.onError(error, what);
    else console.error(`sandmesh link: ${what}:`, error);
  }

  #ended(reason: Error | undefined): void {
    const byClose = this.#closing;
    this.#closing = true;
    this.#tellStatus(false);
    this.#requests.fail(closedError);
    this.#requests.deadlines.close();
    for (const back of this.#returns.splice(0)) back();
    this.#closedWith(byClose ? undefined : (reason ?? new ConnectionError("the connection closed")));
  }

  async close(): Promise<void> {
    if (this.#closing) {
      await this.closed;
      return;
    }
    this.#closing = true;
    if (this.#protocol.connected) {
      // What was published must not be lost with the socket; a server that does not answer must not keep us.
      const late = new Promise<void>((go) => setTimeout(go, 1_000).unref());
      await Promise.race([this.#protocol.flush().catch(() => {}), late]);
    }
    await this.#protocol.close();
    await this.closed;
  }
}

function canceledBefore(): SandmeshError {
  return new CanceledError("the request was canceled before it was sent");
}

function userOf({ role, user, sandbox }: Identity): string {
  if (role === "pool") return "pool";
  return user ?? sandbox ?? "";
}

function checkUrls(urls: readonly string[]): string[] {
  return urls.map((url) => {
    if (!/^(nats|tls):\/\/[^/\s@]+$/.test(url) || !URL.canParse(url)) {
      throw new InvalidRequestError(
        `urls: ${JSON.stringify(url)} is not nats://host:port or tls://host:port`,
        {
          field: "urls",
        },
      );
    }
    return url;
  });
}
