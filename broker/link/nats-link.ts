// A Link over the npm package `nats`: requests on one reply subscription, messages held while the connection is away,
// and the server's errors brought to whom they are about.
import { randomBytes } from "node:crypto";
import type { NatsError } from "nats/lib/nats-base-client/core.js";
import { CanceledError, ConnectionError, SandmeshError, toSandmeshError } from "../contract/core.ts";
import { Absence } from "./absence.ts";
import { after } from "./after.ts";
import { Deadlines } from "./deadlines.ts";
import type { AnswerStream, Link, Message, RequestOptions, SubscribeOptions, Subscription } from "./link.ts";
import { formatHeaders, isNoResponders, LinkMessage, type Respond } from "./message.ts";
import { whenAborted } from "./on-abort.ts";
import { checkSubject, Outbox } from "./outbox.ts";
import { LinkProtocol, type MsgArg } from "./protocol.ts";
import {
  complaintOf,
  credentialRefused,
  observerAsks,
  type RefusedSubject,
  subjectRefused,
  tooManySubscriptions,
} from "./refusals.ts";
import { canceled, closedError, Requests, SingleRequest } from "./requests.ts";
import { type LinkSettings, protocolOptions } from "./settings.ts";
import { Answers } from "./stream.ts";
import { Subscribed } from "./subscribed.ts";

/** How long `close` waits for the server to have all that was published. */
const LAST_FLUSH_MS = 1_000;

export class NatsLink implements Link {
  readonly tenant: string;
  readonly user: string;
  readonly closed: Promise<Error | undefined>;
  readonly #settings: LinkSettings;
  readonly #protocol: LinkProtocol;
  readonly #outbox: Outbox;
  readonly #requests = new Requests(new Deadlines());
  readonly #subscribed = new Subscribed();
  readonly #wildcard: string;
  /** Random, so that the answers of one user's several connections do not all come to each of them. */
  readonly #connection = randomBytes(5).toString("hex");
  readonly #statusHandlers = new Set<(connected: boolean) => void>();
  readonly #flushing = new Set<(error: unknown) => void>();
  readonly #absence: Absence;
  #repliesOpen = false;
  #up = false;
  /** Ended by `close`, or on the way there. */
  #closing = false;
  /** Why the server last refused the credential, until it takes it again. */
  #refused: string | undefined;
  /** Ends `open`, while it is under way. */
  #giveUp: ((error: Error) => void) | undefined;
  #closedWith!: (reason: Error | undefined) => void;

  constructor(settings: LinkSettings) {
    const { tenant, user, replies, relay, dial, intake, ca, tls } = settings;
    this.#settings = settings;
    this.tenant = tenant;
    this.user = user;
    this.#wildcard = `${replies}.${this.#connection}.>`;
    this.closed = new Promise((resolve) => {
      this.#closedWith = resolve;
    });
    this.#protocol = new LinkProtocol(
      protocolOptions(settings),
      { relay, dial, intake, ca, tls },
      settings.delays,
      {
        disconnected: () => this.#disconnected(),
        reconnected: () => this.#reconnected(),
        failed: (error) => this.#serverError(error),
      },
    );
    this.#outbox = new Outbox(this.#protocol);
    this.#absence = new Absence(settings.goneAfterMs);
    // Before all others that are told: whoever waits for an answer learns it at once.
    this.#absence.onGone(() => this.#requests.fail(() => this.gone ?? closedError()));
    this.#protocol.closed.then((reason) => this.#ended(reason instanceof Error ? reason : undefined));
  }

  /** The first connection; throws as `connect` does. */
  async open(signal?: AbortSignal): Promise<void> {
    const { connectTimeoutMs, urls, relay } = this.#settings;
    const canceled = () => new CanceledError("canceled by the caller", { cause: signal?.reason });
    let clear: (() => void) | undefined;
    const givenUp = new Promise<never>((_, reject) => {
      this.#giveUp = reject;
      const late = () => reject(new Error(`no connection within ${connectTimeoutMs} ms`));
      clear = after(connectTimeoutMs, late);
    });
    const unhear = whenAborted(signal, () => this.#giveUp?.(canceled()));
    try {
      await Promise.race([this.#protocol.dialLoop(), givenUp]);
      this.#up = true;
    } catch (cause) {
      this.#closing = true;
      await this.#protocol.close();
      if (signal?.aborted === true) throw canceled();
      if (this.#refused !== undefined) throw credentialRefused(this.#refused);
      const why = cause instanceof Error ? cause.message : String(cause);
      throw new ConnectionError(`no NATS server to be had at ${relay ?? urls.join(", ")}: ${why}`, { cause });
    } finally {
      clear?.();
      unhear();
      this.#giveUp = undefined;
    }
  }

  get maxPayload(): number {
    return this.#outbox.maxPayload;
  }

  get idle(): boolean {
    return this.#protocol.idle;
  }

  publish(
    subject: string,
    data: Uint8Array,
    options?: { reply?: string; headers?: Record<string, string>; tail?: readonly Uint8Array[] },
  ): void {
    this.#send(subject, options?.reply, formatHeaders(options?.headers), data, options?.tail);
  }

  #send(
    subject: string,
    reply: string | undefined,
    headers: Uint8Array | undefined,
    data: Uint8Array,
    tail?: readonly Uint8Array[],
  ): void {
    if (this.#closing) throw closedError();
    this.#outbox.send(subject, reply, headers, data, tail);
  }

  subscribe(
    subject: string,
    handle: (message: Message) => void,
    { queue, refused }: SubscribeOptions = {},
  ): Subscription {
    if (this.#closing) throw closedError();
    checkSubject(subject);
    const stop = this.#protocol.listen(subject, queue, (arg, raw) => {
      try {
        handle(new LinkMessage(arg, raw, this.#respond));
      } catch (error) {
        this.#report(error, `a handler of ${subject}`);
      }
    });
    if (refused === undefined) return { unsubscribe: stop };
    return this.#subscribed.add(subject, refused, stop, (answered) => this.#protocol.ping(answered));
  }

  readonly #respond: Respond = (reply, data, headers) =>
    this.#send(reply, undefined, formatHeaders(headers), data);

  async request(
    responder: string,
    subject: string,
    data: Uint8Array,
    options: RequestOptions,
  ): Promise<Message> {
    if (options.signal?.aborted) throw canceled(responder);
    this.#begin();
    const pending = new SingleRequest(this.#requests, responder, subject, options);
    this.#ask(pending, responder, subject, data, options);
    return pending.promise;
  }

  stream(responder: string, subject: string, data: Uint8Array, options: RequestOptions): AnswerStream {
    this.#begin();
    const { timeoutMs, signal } = options;
    const tokenOf = (number: number) => `${this.#connection}.${number.toString(36)}`;
    const pending = new Answers(this.#requests, responder, subject, timeoutMs, signal, tokenOf);
    if (signal?.aborted) pending.failed(canceled(responder));
    else this.#ask(pending, responder, subject, data, options);
    return pending;
  }

  #begin(): void {
    if (this.#closing) throw closedError();
    if (!this.#settings.mayAsk) throw observerAsks();
    if (this.#refused !== undefined && !this.#protocol.connected) throw credentialRefused(this.#refused);
    if (this.gone !== undefined) throw this.gone;
    if (!this.#repliesOpen) {
      // In front of the request on the same connection: the server has it before it has the request.
      this.#repliesOpen = true;
      this.#protocol.listen(this.#wildcard, undefined, this.#answered);
    }
  }

  #ask(
    pending: SingleRequest | Answers,
    responder: string,
    subject: string,
    data: Uint8Array,
    options: RequestOptions,
  ): void {
    // The pool asks sandboxes of all tenants, each under its own.
    const tenant = this.tenant === "" ? (subject.split(".", 3)[2] ?? "") : this.tenant;
    pending.reply = `rep.v1.${tenant}.${responder}.${this.user}.${this.#connection}.${pending.number.toString(36)}`;
    try {
      this.#send(subject, pending.reply, formatHeaders(options.headers), data, options.tail);
    } catch (error) {
      pending.failed(toSandmeshError(error));
    }
  }

  readonly #answered = (arg: MsgArg, raw: Uint8Array): void => {
    const pending = this.#requests.find(arg.subject);
    if (pending === undefined) return; // came after its deadline, or from someone who was not asked
    if (isNoResponders(arg, raw)) pending.unanswerable();
    else pending.answered(new LinkMessage(arg, raw, this.#respond));
  };

  async flush(): Promise<void> {
    if (this.#closing) throw closedError();
    if (!this.#protocol.connected) await this.#absence.over();
    if (this.#closing) throw closedError();
    if (this.gone !== undefined) throw this.gone;
    // The package leaves a flush that is under way when it closes without an answer for ever.
    let end: (error: unknown) => void = () => {};
    const ended = new Promise<never>((_, reject) => {
      end = reject;
    });
    this.#flushing.add(end);
    try {
      await Promise.race([this.#protocol.flush(), ended]);
    } catch (cause) {
      if (this.#closing) throw closedError();
      throw new ConnectionError("the connection was lost before the server had all of it", { cause });
    } finally {
      this.#flushing.delete(end);
    }
  }

  onStatus(handle: (connected: boolean) => void): () => void {
    // The same function may be handed in twice.
    const own = (connected: boolean) => handle(connected);
    this.#statusHandlers.add(own);
    return () => this.#statusHandlers.delete(own);
  }

  #tellStatus(connected: boolean): void {
    if (this.#up === connected) return;
    this.#up = connected;
    if (!connected) this.#absence.begin();
    for (const handle of [...this.#statusHandlers]) {
      try {
        handle(connected);
      } catch (error) {
        this.#report(error, "a handler of onStatus");
      }
    }
  }

  get awayMs(): number {
    return this.#absence.awayMs;
  }

  get gone(): ConnectionError | undefined {
    return this.#absence.error;
  }

  onGone(handle: () => void): () => void {
    return this.#absence.onGone(handle);
  }

  #disconnected(): void {
    if (this.#closing) return;
    this.#requests.cut();
    this.#tellStatus(false);
  }

  #reconnected(): void {
    this.#refused = undefined;
    this.#outbox.release();
    this.#absence.end();
    this.#tellStatus(true);
    this.#requests.returned();
  }

  #serverError(error: NatsError): void {
    const complaint = complaintOf(error);
    if (complaint.about === "credential") this.#credentialRefused(error);
    else if (complaint.about === "subject") this.#subjectRefused(complaint);
    else if (complaint.about === "number of subscriptions") {
      if (!this.#subscribed.refuseOne(tooManySubscriptions))
        this.#report(tooManySubscriptions(), "the server");
    } else if (complaint.about === "anything else") this.#report(error, "the server");
  }

  #credentialRefused(error: NatsError): void {
    // The cut of a connection that stood (an expiry) leaves hope: the next credential may be a newer one. A refused
    // return does not. The package has let go of the socket by now, so that it does not know which it is.
    if (this.#up) return;
    this.#refused = error.message;
    this.#giveUp?.(error);
    this.#requests.fail(() => credentialRefused(error.message));
  }

  #subjectRefused(refused: RefusedSubject): void {
    const { operation, subject } = refused;
    const denied = () => subjectRefused(refused);
    const concerned =
      operation === "publish"
        ? this.#requests.fail(denied, subject)
        : subject === this.#wildcard
          ? this.#requests.fail(denied)
          : this.#subscribed.refuse(subject, denied);
    if (!concerned) this.#report(denied(), "the server");
  }

  #report(error: unknown, what: string): void {
    if (this.#settings.onError !== undefined) this.#settings.onError(error, what);
    else console.error(`sandmesh link: ${what}:`, error instanceof SandmeshError ? error.message : error);
  }

  #ended(reason: Error | undefined): void {
    const byClose = this.#closing;
    this.#closing = true;
    this.#tellStatus(false);
    this.#absence.end();
    this.#requests.fail(closedError);
    this.#requests.deadlines.close();
    for (const fail of this.#flushing) fail(closedError());
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
      const late = new Promise<void>((go) => setTimeout(go, LAST_FLUSH_MS).unref());
      await Promise.race([this.#protocol.flush().catch(() => {}), late]);
    }
    await this.#protocol.close();
    await this.closed;
  }
}
