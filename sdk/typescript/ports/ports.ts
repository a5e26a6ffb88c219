// TCP between this machine and a sandbox, both ways, over the mesh: no port of the sandbox is open to any network.
import { createServer, connect as dial, type Server, type Socket } from "node:net";
import {
  FIRST_CREDIT_BYTES,
  newUuidV7,
  ProviderError,
  type RequestOf,
  type SANDBOX_VERBS,
} from "../../../broker/contract/index.ts";
import { given, invalid, nothingElse, onlySignal, onlyWellFormed } from "../arguments.ts";
import { Follower } from "../command/follow.ts";
import { StdinWriter } from "../command/stdin.ts";
import { CommandStream } from "../command/stream.ts";
import type { Abortable } from "../files/files.ts";
import { defined } from "../spec.ts";
import type { Box } from "../wire/box.ts";
import { throwIfAborted, unlessAborted } from "../wire/pause.ts";

type Port = NonNullable<RequestOf<(typeof SANDBOX_VERBS)["exec"]>["port"]>;

/** A connection has no end that is known beforehand. */
const UNLIMITED_BYTES = 64 * 1024 * 1024 * 1024;

function open(box: Box, port: Port, onOutputEnd?: () => void): CommandStream {
  const id = newUuidV7();
  const exec = {
    id,
    port,
    stdin_open: true,
    output_limit_bytes: UNLIMITED_BYTES,
    credit_bytes: FIRST_CREDIT_BYTES,
  };
  const follower = new Follower(box, { id, exec, keep: "head" });
  return new CommandStream(box, id, follower, { onLeave: "cancel", ...defined({ onOutputEnd }) });
}

/** Cuts a connection on both sides. */
type Cut = () => void;

/** Not by an end, after which what came would look whole; but behind one that has been told, which is on its way. */
function reset(socket: Socket): void {
  const ending = socket.writableEnded && !socket.writableFinished;
  // While it connects a reset waits for that. In Node one that meets an end on its way is refused (by uv_tcp_close_reset:
  // EINVAL), and the socket is never closed: a program that ends then waits for it for ever, and computes.
  if (!socket.connecting && !socket.destroyed && !ending) socket.resetAndDestroy();
  socket.destroy();
}

/** Copies both ways until both are at their end; an end on either side is the other's, and so is a cut. Never rejects.
 * While it lasts its cut is in `cuts`: the command may go on when the socket is closed. */
async function join(box: Box, socket: Socket, port: Port, cuts: Set<Cut>): Promise<void> {
  socket.setNoDelay(true);
  // Before anything else that may fail: an error that nobody hears ends the process.
  socket.on("error", () => undefined);
  let stream: CommandStream;
  try {
    stream = open(box, port, () => socket.end());
  } catch {
    // The sandbox is lost, or the server gone.
    reset(socket);
    return;
  }
  let comes = true;
  const stdin = new StdinWriter(box, stream.id, 0, () => comes);
  const cut = (): void => {
    stream.close();
    reset(socket);
  };
  cuts.add(cut);
  socket.on("error", cut);
  // When both sides have closed in order, what this one has sent may still be on its way.
  socket.on("close", () => {
    if (!socket.readableEnded || !socket.writableFinished) cut();
  });
  let sending: Promise<void> | undefined;
  const send = async (): Promise<void> => {
    // The loop's own end would destroy the socket, also the half that is still written.
    const parts = socket.iterator({ destroyOnReturn: false });
    for await (const part of parts) if (part instanceof Uint8Array) await stdin.write(part);
    await stdin.close();
  };
  try {
    const chunks = stream[Symbol.asyncIterator]();
    // The exec is sent with the first step, and stdin behind it.
    let next = chunks.next();
    sending = send();
    sending.catch(cut);
    for (let step = await next; step.done !== true; step = await next) {
      comes = false;
      if (!socket.write(step.value.data)) await drained(socket);
      next = chunks.next();
    }
    const { outcome } = await stream.end;
    if (outcome.type === "exited" && outcome.code === 0) socket.end();
    else reset(socket);
  } catch {
    // What became of the sandbox its own calls tell; a connection can only be cut.
    reset(socket);
  } finally {
    comes = false;
    cuts.delete(cut);
  }
}

const drained = (socket: Socket): Promise<void> =>
  new Promise((resolve) => {
    if (socket.destroyed) return resolve();
    const done = (): void => {
      socket.off("drain", done);
      socket.off("close", done);
      resolve();
    };
    socket.on("drain", done);
    socket.on("close", done);
  });

/** The signal ends the opening; of no effect on what is open. */
export interface ForwardOptions extends Abortable {
  /** Where the server is, as the sandbox sees it; default 127.0.0.1. */
  host?: string;
  /** Of this machine; default any free one. */
  localPort?: number;
  /** Default 127.0.0.1: this machine only. */
  localHost?: string;
}

/** The signal ends the opening; of no effect on what is open. */
export interface ExposeOptions extends Abortable {
  /** In the sandbox; default any free one. */
  port?: number;
  /** In the sandbox; default 127.0.0.1. */
  host?: string;
  /** Of the server, as this machine sees it; default 127.0.0.1. */
  localHost?: string;
}

/** Where to connect to; `close` ends the listening and all connections, and its signal the waiting for that. */
export interface Forward extends AsyncDisposable {
  readonly host: string;
  readonly port: number;
  close(options?: Abortable): Promise<void>;
}

function checkPort(port: unknown, field: string, least: 0 | 1): void {
  if (!Number.isInteger(port) || Number(port) < least || Number(port) > 65535)
    throw invalid(field, `must be a number from ${least} to 65535`);
}

function checkHost(host: unknown, field: string): void {
  if (typeof host !== "string" || host.length === 0 || host.length > 255 || host.includes("\0"))
    throw invalid(field, "must be the name or address of a host");
  onlyWellFormed({ [field]: host });
}

/** Throws InvalidRequestError, also where this machine does not listen there: it names `localHost` or `localPort`. */
export async function forward(box: Box, port: number, options: ForwardOptions): Promise<Forward> {
  const { host = "127.0.0.1", localPort = 0, localHost = "127.0.0.1", signal, ...rest } = given(options);
  nothingElse(rest);
  checkPort(port, "port", 1);
  checkHost(host, "host");
  checkPort(localPort, "localPort", 0);
  checkHost(localHost, "localHost");
  box.lifeline.throwIfLost();
  throwIfAborted(signal);
  const cuts = new Set<Cut>();
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    void join(box, socket, { type: "connect", host, port }, cuts);
  });
  try {
    await unlessAborted(listening(server, localPort, localHost), signal);
  } catch (error) {
    // The name may still be looked up; what listens then is closed.
    server.once("listening", () => server.close());
    server.close();
    throw error;
  }
  const stop = box.onLost(() => server.close());
  const address = server.address();
  return handle(
    localHost,
    typeof address === "object" && address !== null ? address.port : localPort,
    async () => {
      stop();
      await closeServer(server, cuts);
    },
  );
}

/** Throws InvalidRequestError, ProviderError where the sandbox cannot listen there, and what a command throws. */
export async function expose(box: Box, localPort: number, options: ExposeOptions): Promise<Forward> {
  const { port = 0, host = "127.0.0.1", localHost = "127.0.0.1", signal, ...rest } = given(options);
  nothingElse(rest);
  checkPort(localPort, "localPort", 1);
  checkPort(port, "port", 0);
  checkHost(host, "host");
  checkHost(localHost, "localHost");
  throwIfAborted(signal);
  const cuts = new Set<Cut>();
  const stream = open(box, { type: "listen", host, port });
  const numbers = lines(stream);
  const first = await unlessAborted(numbers.next(), signal).catch((error: unknown) => {
    stream.close();
    throw error;
  });
  if (first.done === true) {
    const { outcome } = await stream.end;
    throw new ProviderError(
      outcome.type === "not_started" ? outcome.message : `not listening: ${outcome.type}`,
      {
        sandbox: box.id,
      },
    );
  }
  const accepting = (async () => {
    for await (const connection of numbers) {
      const socket = dial({ host: localHost, port: localPort, allowHalfOpen: true });
      void join(box, socket, { type: "accept", listener: stream.id, connection }, cuts);
    }
  })();
  // Its end is the sandbox's, which its own calls tell.
  accepting.catch(() => undefined);
  return handle(host, first.value, async () => {
    stream.close();
    for (const cut of cuts) cut();
    await accepting.catch(() => undefined);
  });
}

async function* lines(stream: CommandStream): AsyncGenerator<number, void, void> {
  let rest = "";
  for await (const { data } of stream) {
    const parts = (rest + Buffer.from(data).toString("latin1")).split("\n");
    rest = parts.pop() ?? "";
    yield* parts.map(Number);
  }
}

function listening(server: Server, port: number, host: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const failed = (error: Error & { code?: string; syscall?: string }): void => {
      const field =
        error.syscall === "getaddrinfo" || error.code === "EADDRNOTAVAIL" ? "localHost" : "localPort";
      reject(invalid(field, `this machine does not listen at ${host}, port ${port}: ${error.message}`));
    };
    server.once("error", failed);
    server.listen(port, host, () => {
      server.off("error", failed);
      resolve();
    });
  });
}

function closeServer(server: Server, cuts: Set<Cut>): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
    for (const cut of cuts) cut();
  });
}

function handle(host: string, port: number, close: () => Promise<void>): Forward {
  let closing: Promise<void> | undefined;
  const once = async (options: Abortable = {}): Promise<void> => {
    const { signal } = onlySignal(options);
    closing ??= close();
    await unlessAborted(closing, signal);
  };
  return { host, port, close: once, [Symbol.asyncDispose]: () => once() };
}
