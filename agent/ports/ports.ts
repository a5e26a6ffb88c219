// TCP in and out of the sandbox: connections to its servers, and listeners whose connections the trainer takes over.
import { connect, createServer, type Server, type Socket } from "node:net";
import type { Outcome, Port } from "../../broker/contract/index.ts";
import type { CommandSink, ParsedExec, RunningCommand } from "../../broker/endpoint/executor.ts";
import { PortCommand, SocketCommand } from "./port-command.ts";

/** A connection that nobody takes over is closed after this. */
const UNCLAIMED_MS = 10_000;
/** Of each listener, waiting to be taken over. */
const MAX_UNCLAIMED = 256;

type Listen = Extract<Port, { type: "listen" }>;

class Listener extends PortCommand {
  readonly #server: Server;
  readonly #waiting = new Map<number, { socket: Socket; timer: ReturnType<typeof setTimeout> }>();
  #count = 0;

  constructor({ host, port }: Listen, request: ParsedExec, sink: CommandSink, onEnd: () => void) {
    super(request, sink, onEnd);
    this.#server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (socket) =>
      this.#seen(socket),
    );
    this.#server.on("error", (error) =>
      this.finish({
        type: "not_started",
        reason: "listen_failed",
        message: `cannot listen: ${error.message}`,
      }),
    );
    this.#server.listen(port, host, () => {
      const address = this.#server.address();
      this.begun();
      this.#say(typeof address === "object" && address !== null ? address.port : port);
    });
  }

  #say(number: number): void {
    this.output(Buffer.from(`${number}\n`));
  }

  #seen(socket: Socket): void {
    if (this.over || this.#waiting.size >= MAX_UNCLAIMED) {
      socket.destroy();
      return;
    }
    const number = ++this.#count;
    const drop = (): void => {
      this.take(number)?.destroy();
    };
    this.#waiting.set(number, { socket, timer: setTimeout(drop, UNCLAIMED_MS) });
    socket.on("error", drop);
    socket.on("close", drop);
    this.#say(number);
  }

  /** A connection that waits; undefined where there is none of that number. */
  take(number: number): Socket | undefined {
    const found = this.#waiting.get(number);
    if (found === undefined) return undefined;
    this.#waiting.delete(number);
    clearTimeout(found.timer);
    return found.socket;
  }

  protected release(): void {
    this.#server.close();
    for (const number of [...this.#waiting.keys()]) this.take(number)?.destroy();
  }
}

export class Ports {
  readonly #open = new Set<PortCommand>();
  readonly #listeners = new Map<string, Listener>();

  /** See Executor.exec. */
  exec(port: Port, request: ParsedExec, sink: CommandSink): RunningCommand {
    switch (port.type) {
      case "connect": {
        const socket = connect({ host: port.host, port: port.port, allowHalfOpen: true });
        return this.#socket(socket, false, request, sink);
      }
      case "accept": {
        const socket = this.#listeners.get(port.listener)?.take(port.connection);
        if (socket !== undefined) return this.#socket(socket, true, request, sink);
        return new Refused(request, sink, {
          type: "not_started",
          reason: "connect_failed",
          message: `no connection ${port.connection} waits at ${port.listener}: it was closed, or taken already`,
        });
      }
      case "listen": {
        const { id = "" } = request;
        const listener: Listener = new Listener(port, request, sink, () => {
          this.#open.delete(listener);
          this.#listeners.delete(id);
        });
        this.#open.add(listener);
        this.#listeners.set(id, listener);
        return listener;
      }
    }
  }

  #socket(socket: Socket, connected: boolean, request: ParsedExec, sink: CommandSink): SocketCommand {
    const command: SocketCommand = new SocketCommand(socket, connected, request, sink, () =>
      this.#open.delete(command),
    );
    this.#open.add(command);
    if (connected) socket.resume();
    return command;
  }

  close(): void {
    for (const command of [...this.#open]) command.cancel();
  }
}

class Refused extends PortCommand {
  constructor(request: ParsedExec, sink: CommandSink, outcome: Outcome) {
    super(request, sink, () => {});
    this.finish(outcome);
  }
  protected release(): void {}
}
