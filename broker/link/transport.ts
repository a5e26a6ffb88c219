// The socket under a connection: TCP, TLS, or a unix socket that leads to NATS. Unlike the stock transport it hands
// what arrives straight to the parser, without a queue and an async iterator between.
import { connect as dialSocket, isIP, type Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import type { ConnectionOptions, Server } from "nats/lib/nats-base-client/core.js";
import type { Transport } from "nats/lib/nats-base-client/transport.js";
import { LargeMessages, type OpenIntake } from "./intake.ts";
import type { MessageParser } from "./parser.ts";

export interface TransportSettings {
  /** Path of a unix socket to dial instead of the server's address. */
  relay: string | undefined;
  /** Gives a socket that leads to the server; where it answers undefined, one is dialled. */
  dial: (() => Promise<Socket | undefined>) | undefined;
  /** PEM of the CA; undefined: those that the system trusts. */
  ca: string | undefined;
  /** Refuses a server that does not speak TLS; a server that wants it gets it in any case. */
  tls: boolean;
  /** Reads a socket in the runtime's stead, as long as large messages come. */
  intake: OpenIntake | undefined;
  /** Takes the server's bytes; what it throws ends the connection. */
  messages: MessageParser;
}

const asError = (thrown: unknown): Error => (thrown instanceof Error ? thrown : new Error(String(thrown)));

const INFO_LINE = /^INFO\s+([^\r\n]+)\r\n/i;
/** A server's first line is some 500 bytes; whatever sends more is no NATS server. */
const MAX_INFO_BYTES = 64 * 1024;

export class LinkTransport implements Transport {
  readonly lang = "sandmesh";
  readonly version = "1";
  closeError?: Error;
  isClosed = false;
  readonly #settings: TransportSettings;
  #socket: Socket | undefined;
  #connected = false;
  #encrypted = false;
  #large: LargeMessages | undefined;
  #ended!: (error: Error | undefined) => void;
  readonly #closed = new Promise<Error | undefined>((end) => {
    this.#ended = end;
  });

  constructor(settings: TransportSettings) {
    this.#settings = settings;
  }

  async connect(server: Server, _options: ConnectionOptions): Promise<void> {
    const { relay, dial, ca, tls } = this.#settings;
    const { hostname, port } = server;
    try {
      const given = await dial?.();
      const socket =
        given ?? (relay === undefined ? dialSocket({ host: hostname, port }) : dialSocket({ path: relay }));
      this.#socket = socket;
      socket.setNoDelay(true);
      if (socket.connecting) await ready(socket, "connect");
      const { line, info } = await firstLine(socket);
      if (info.tls_required === true || tls) {
        if (info.tls_required !== true && info.tls_available !== true)
          throw new Error("the server speaks no TLS");
        this.#socket = await encrypt(socket, hostname, ca);
        this.#encrypted = true;
      }
      this.#connected = true;
      this.#listen(this.#socket);
      this.#receive(line);
    } catch (error) {
      this.#socket?.destroy();
      throw asError(error);
    }
  }

  #listen(socket: Socket): void {
    let failure: Error | undefined;
    const { intake, messages } = this.#settings;
    // An encrypted one has other bytes than those that are to be read.
    if (intake !== undefined && !this.#encrypted)
      this.#large = new LargeMessages(socket, messages, intake, this.#failed);
    socket.on("data", (chunk: Uint8Array) => this.#receive(chunk));
    socket.on("error", (error) => {
      failure = error;
    });
    socket.on("end", () => socket.destroy());
    socket.on("close", () => this.#end(failure));
    socket.resume();
  }

  #receive(chunk: Uint8Array): void {
    try {
      this.#settings.messages.parse(chunk);
      this.#large?.look();
    } catch (error) {
      this.#failed(error);
    }
  }

  readonly #failed = (error: unknown): void => this.#end(asError(error));

  #end(error: Error | undefined): void {
    if (!this.#connected || this.isClosed) return;
    this.isClosed = true;
    if (error !== undefined) this.closeError = error;
    this.#large?.close();
    this.#socket?.destroy();
    this.#ended(error);
  }

  send(frame: Uint8Array): void {
    // A failed write is told by the socket's close.
    if (!this.isClosed) this.#socket?.write(frame);
  }

  /** Whether the socket has taken all that was sent: it may still hold what comes while it has not. */
  get idle(): boolean {
    return this.#socket?.writableLength === 0;
  }

  async close(error?: Error): Promise<void> {
    this.#end(error);
    this.#socket?.destroy();
  }

  disconnect(): void {
    this.#end(undefined);
  }

  closed(): Promise<Error | undefined> {
    return this.#closed;
  }

  isEncrypted(): boolean {
    return this.#encrypted;
  }

  discard(): void {}

  /** The protocol's read loop: there is nothing for it to read, since `receive` has it all. */
  [Symbol.asyncIterator](): AsyncIterableIterator<Uint8Array> {
    const next = async (): Promise<IteratorResult<Uint8Array>> => {
      await this.#closed;
      return { value: undefined, done: true };
    };
    const iterator = { next, [Symbol.asyncIterator]: () => iterator };
    return iterator;
  }
}

/** Resolves at `event`; rejects when the socket fails or closes before. */
function ready(socket: Socket, event: "connect" | "secureConnect"): Promise<void> {
  return new Promise((resolve, reject) => {
    const done = () => {
      socket.removeListener("error", failed);
      socket.removeListener("close", closed);
      resolve();
    };
    const failed = (error: Error) => reject(error);
    const closed = () => reject(new Error("the connection closed before it was open"));
    socket.once(event, done);
    socket.once("error", failed);
    socket.once("close", closed);
  });
}

interface FirstInfo {
  tls_required?: boolean;
  tls_available?: boolean;
}

/** Reads the server's INFO line and no more, since TLS may begin after it. */
function firstLine(socket: Socket): Promise<{ line: Uint8Array; info: FirstInfo }> {
  return new Promise((resolve, reject) => {
    let seen = Buffer.alloc(0);
    const onData = (chunk: Buffer) => {
      seen = Buffer.concat([seen, chunk]);
      const found = INFO_LINE.exec(seen.toString("latin1"));
      if (found === null) {
        if (
          seen.length > MAX_INFO_BYTES ||
          !"INFO ".startsWith(seen.toString("latin1", 0, 5).toUpperCase())
        ) {
          stop(() => reject(new Error("what listens there is not a NATS server")));
        }
        return;
      }
      socket.pause();
      stop(() => {
        try {
          resolve({ line: seen, info: JSON.parse(found[1] ?? "{}") as FirstInfo });
        } catch (error) {
          reject(error);
        }
      });
    };
    const onError = (error: Error) => stop(() => reject(error));
    const onClose = () => stop(() => reject(new Error("the server closed the connection at once")));
    const stop = (then: () => void) => {
      socket.removeListener("data", onData);
      socket.removeListener("error", onError);
      socket.removeListener("close", onClose);
      then();
    };
    socket.on("data", onData);
    socket.once("error", onError);
    socket.once("close", onClose);
  });
}

async function encrypt(socket: Socket, hostname: string, ca: string | undefined): Promise<TLSSocket> {
  // Loaded here, since it takes 2 ms of a start, and most connections do without. What befalls the socket meanwhile is
  // seen after it.
  const unheard = (): void => {};
  socket.on("error", unheard);
  const { connect: startTls } = await import("node:tls");
  if (socket.destroyed) throw new Error("the connection closed before it was encrypted");
  socket.removeListener("error", unheard);
  const secure = startTls({
    socket,
    host: hostname,
    // A certificate for an address is checked against `host`; SNI carries names only.
    ...(isIP(hostname) ? {} : { servername: hostname }),
    ...(ca === undefined ? {} : { ca }),
    rejectUnauthorized: true,
  });
  await ready(secure, "secureConnect");
  return secure;
}
