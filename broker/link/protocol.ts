// The NATS protocol of the npm package `nats`, with our transport under it and messages handed to plain callbacks.
// The package's own connection object is left out: its request multiplexer uses `_INBOX`, its events are iterators.
import type { ConnectionOptions, NatsError, Server, Status } from "nats/lib/nats-base-client/core.js";
import { ProtocolHandler, SubscriptionImpl } from "nats/lib/nats-base-client/protocol.js";
import { setTransportFactory } from "nats/lib/nats-base-client/transport.js";
import { giveBlock, takeBlock } from "./blocks.ts";
import { type MessageArg, MessageParser } from "./parser.ts";
import { LinkTransport, type TransportSettings } from "./transport.ts";

export type MsgArg = MessageArg;
export type RawHandler = (message: MsgArg, data: Uint8Array) => void;

export interface ProtocolEvents {
  disconnected(): void;
  reconnected(): void;
  /** What the server reported: a refused publish or subscription, or a refused credential. */
  failed(error: NatsError): void;
}

export interface ReconnectDelays {
  /** At most this until the first try after a loss; ms. */
  firstMs: number;
  /** About this until the second try, doubled for each further one; ms. */
  baseMs: number;
  /** At most about this; ms. */
  maxMs: number;
}

/** How long to wait before try `attempt` (0 is the first after a loss). Spread by `random` (0 to 1), so that thousands
 * that lost the same server do not come back in the same moment. */
export function reconnectDelayMs(attempt: number, delays: ReconnectDelays, random: number): number {
  if (attempt === 0) return delays.firstMs * random;
  const step = Math.min(delays.maxMs, delays.baseMs * 2 ** Math.min(attempt - 1, 16));
  return step * (0.5 + random);
}

/** The part of the package's publisher that its protocol object wants; nothing of ours goes through it. */
const NO_PUBLISHER = { publish: () => {}, publishMessage: () => {}, respondMessage: () => false };
const CRLF = Buffer.from("\r\n");
const PING = Buffer.from("PING\r\n");
const PONG = Buffer.from("PONG\r\n");
const INFO = Buffer.from("INFO ");
const NOTHING = new Uint8Array(0);
const SMALL_BYTES = 2048;
/** A message of the wire's greatest chunk, with what stands around it: such a one is put together, so that it goes out by one
 * write. The copy costs less than two writes more, and what the server reads by them. */
const STAGE_BYTES = 256 * 1024 + 16 * 1024;

export const lengthOf = (parts: readonly Uint8Array[]): number => {
  let length = 0;
  for (const part of parts) length += part.length;
  return length;
};

export class LinkProtocol extends ProtocolHandler {
  readonly #handlers = new Map<number, RawHandler>();
  readonly #settings: Omit<TransportSettings, "messages">;
  readonly #events: ProtocolEvents;
  readonly #delays: ReconnectDelays;
  #attempt = 0;
  #delayMs = 0;
  /** A connection stood, and its loss was not told yet. */
  #up = false;
  /** A loss was told, and no return yet. */
  #lost = false;

  constructor(
    options: ConnectionOptions,
    settings: Omit<TransportSettings, "messages">,
    delays: ReconnectDelays,
    events: ProtocolEvents,
  ) {
    super({ ...options, reconnectDelayHandler: () => this.#delayMs }, NO_PUBLISHER);
    this.#settings = settings;
    this.#delays = delays;
    this.#events = events;
  }

  /** The package knows one transport for the whole process, and asks for it at the start of a dial. Ours is set for
   * that moment only, so that other users of the package in this process keep theirs. */
  override dial(server: Server): Promise<void> {
    const messages = new MessageParser({
      message: (arg, data) => this.#handlers.get(arg.sid)?.(arg, data),
      line: (line) => this.#line(line),
    });
    setTransportFactory({ factory: () => new LinkTransport({ ...this.#settings, messages }) });
    this.#delayMs = reconnectDelayMs(++this.#attempt, this.#delays, Math.random());
    const dialing = super.dial(server).then(() => {
      this.#attempt = 0;
      this.#up = true;
    });
    // The package waits out its time limit for the answer to CONNECT also where the server has hung up meanwhile (one
    // that is just being killed does). Of no effect once the answer is there.
    const fail = this.connectError;
    void this.transport.closed().then((error) => fail?.(error ?? new Error("the server hung up on CONNECT")));
    return dialing;
  }

  /** The usual ones are read here: the package's parser takes each character by itself, and is large enough that a start of
   * the daemon spends a millisecond on compiling it. */
  #line(line: Uint8Array): void {
    const text = Buffer.from(line.buffer, line.byteOffset, line.length);
    if (text.equals(PONG)) this.processPong();
    else if (text.equals(PING)) this.processPing();
    else if (text.subarray(0, INFO.length).equals(INFO)) this.processInfo(text.subarray(INFO.length));
    else this.parser.parse(line);
  }

  override dispatchStatus(status: Status): void {
    if (status.type === "disconnect") {
      // The package also tells so of each dial that came as far as the credential and was refused.
      if (!this.#up) return;
      this.#up = false;
      this.#lost = true;
      // The package takes its first try at once if the server was last dialled long ago; thousands would do so.
      this.#delayMs = reconnectDelayMs(0, this.#delays, Math.random());
      for (const server of this.servers.getServers()) server.lastConnect = Date.now();
      this.#events.disconnected();
    } else if (status.type === "reconnect" && this.#lost) {
      // Each dial that was cut short waits for the same return, and tells of it.
      this.#lost = false;
      this.#events.reconnected();
    }
  }

  override handleError(error: NatsError): void {
    super.handleError(error);
    this.#events.failed(error);
  }

  listen(subject: string, queue: string | undefined, handle: RawHandler): () => void {
    const subscription = new SubscriptionImpl(this, subject, {
      callback: () => {},
      ...(queue === undefined ? {} : { queue }),
    });
    this.subscribe(subscription);
    const { sid } = subscription;
    this.#handlers.set(sid, handle);
    return () => {
      this.#handlers.delete(sid);
      subscription.unsubscribe();
    };
  }

  /** Sends a ping, and calls `answered` in the turn in which the answer is read, or with the loss of the connection: a promise
   * would tell after what came behind it in the same packet. */
  ping(answered: () => void): void {
    const pong = new Promise<void>(() => undefined);
    void this.flush(Object.assign(pong, { resolve: answered, reject: answered }));
  }

  /** Sends one message, `tail` behind `data`; the caller has checked it. */
  emit(
    subject: string,
    reply: string | undefined,
    headers: Uint8Array | undefined,
    data: Uint8Array,
    tail: readonly Uint8Array[],
  ): void {
    const to = reply === undefined ? subject : `${subject} ${reply}`;
    const length = data.length + lengthOf(tail);
    const line =
      headers === undefined
        ? `PUB ${to} ${length}\r\n`
        : `HPUB ${to} ${headers.length} ${headers.length + length}\r\n`;
    if (tail.length > 0) {
      this.sendCommand(line, headers ?? NOTHING, data);
      // In front of the tail, which the package would copy.
      this.#sendLarge(this.outbound.drain(), tail);
    } else if (headers !== undefined) this.sendCommand(line, headers, data, CRLF);
    else if (data.length > SMALL_BYTES) this.sendCommand(line, data, CRLF);
    else {
      // In one piece from the start: the package would join the pieces when it sends them.
      const whole = Buffer.allocUnsafe(line.length + data.length + CRLF.length);
      whole.write(line, "latin1");
      whole.set(data, line.length);
      whole.set(CRLF, line.length + data.length);
      this.sendCommand(whole);
    }
  }

  /** Whether the socket holds nothing of what was sent. */
  get idle(): boolean {
    return this.transport instanceof LinkTransport && this.transport.idle;
  }

  #sendLarge(ahead: Uint8Array, tail: readonly Uint8Array[]): void {
    const { transport } = this;
    const length = ahead.length + lengthOf(tail) + CRLF.length;
    if (!this.idle || length > STAGE_BYTES) {
      transport.send(ahead);
      for (const part of tail) transport.send(part);
      this.sendCommand(CRLF);
      return;
    }
    const stage = takeBlock(length);
    let at = 0;
    for (const part of [ahead, ...tail, CRLF]) {
      stage.set(part, at);
      at += part.length;
    }
    transport.send(stage);
    // Otherwise the socket holds it.
    if (this.idle) giveBlock(stage);
  }
}
