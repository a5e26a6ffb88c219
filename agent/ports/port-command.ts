// A TCP connection as a command: stdin goes to the socket, what the socket sends is stdout.
import type { Socket } from "node:net";
import type { Outcome } from "../../broker/contract/index.ts";
import type { CommandSink, ParsedExec, RunningCommand } from "../../broker/endpoint/executor.ts";
import { after } from "../../broker/link/after.ts";
import { noProcess } from "../exec/signals.ts";

/** What all port commands share: they end once, have no process, and a time limit. */
export abstract class PortCommand implements RunningCommand {
  readonly #sink: CommandSink;
  readonly #onEnd: () => void;
  readonly #begunAt = performance.now();
  readonly #clearTimer: (() => void) | undefined;
  #over = false;

  constructor(request: ParsedExec, sink: CommandSink, onEnd: () => void) {
    this.#sink = sink;
    this.#onEnd = onEnd;
    const { timeout_ms } = request;
    if (timeout_ms !== undefined) {
      const outcome: Outcome = { type: "timed_out", after_ms: timeout_ms, killed: 0, signal: "SIGTERM" };
      this.#clearTimer = after(timeout_ms, () => this.finish(outcome));
    }
  }

  get over(): boolean {
    return this.#over;
  }

  /** Closes what is open; called once, before the end is told. */
  protected abstract release(outcome: Outcome): void;

  protected begun(): void {
    if (!this.#over) this.#sink.started(process.pid);
  }

  protected output(data: Uint8Array): void {
    if (!this.#over) this.#sink.output("stdout", data);
  }

  protected outputEnd(): void {
    if (!this.#over) this.#sink.outputEnd?.("stdout");
  }

  finish(outcome: Outcome): void {
    if (this.#over) return;
    this.#over = true;
    this.#clearTimer?.();
    this.release(outcome);
    this.#sink.ended({ outcome, durationMs: performance.now() - this.#begunAt });
    this.#onEnd();
  }

  cancel(as?: Outcome): void {
    this.finish(as ?? { type: "canceled", killed: 0, signal: "SIGTERM" });
  }

  pause(_paused: boolean): void {}
  stdin(_data: Uint8Array): Promise<void> {
    return Promise.resolve();
  }
  closeStdin(): void {}
  signal(): boolean {
    if (this.#over) return false;
    throw noProcess("a connection");
  }
  resize(): void {}
  background(): Promise<number[]> {
    return Promise.resolve([]);
  }
}

/** `socket` is connected, or connecting. */
export class SocketCommand extends PortCommand {
  readonly #socket: Socket;
  #connected: boolean;
  #failure: Error | undefined;

  constructor(socket: Socket, connected: boolean, request: ParsedExec, sink: CommandSink, onEnd: () => void) {
    super(request, sink, onEnd);
    this.#socket = socket;
    this.#connected = connected;
    if (connected) this.begun();
    else
      socket.once("connect", () => {
        this.#connected = true;
        this.begun();
      });
    socket.setNoDelay(true);
    socket.on("data", (data) => this.output(data));
    // The other side may close first and wait for ours.
    socket.on("end", () => this.outputEnd());
    socket.on("error", (error) => {
      this.#failure = error;
    });
    socket.on("close", () => this.finish(this.#outcome()));
    if (request.stdin !== undefined && request.stdin.length > 0) void this.stdin(request.stdin);
    if (!request.stdin_open) this.closeStdin();
  }

  #outcome(): Outcome {
    if (this.#connected) return { type: "exited", code: this.#failure === undefined ? 0 : 1 };
    const message = `cannot connect: ${this.#failure?.message ?? "the connection was closed"}`;
    return { type: "not_started", reason: "connect_failed", message };
  }

  protected release({ type }: Outcome): void {
    // A cut is no end, after which what came would look whole. While it connects a reset waits for that.
    if (type === "exited" || this.#socket.connecting || this.#socket.destroyed) this.#socket.destroy();
    else this.#socket.resetAndDestroy();
  }

  override pause(paused: boolean): void {
    if (this.over) return;
    if (paused) this.#socket.pause();
    else this.#socket.resume();
  }

  /** Resolves when the socket takes more; the other side's slowness is the writer's. */
  override stdin(data: Uint8Array): Promise<void> {
    const socket = this.#socket;
    if (this.over || !socket.writable || socket.write(data)) return Promise.resolve();
    return new Promise((resolve) => {
      const done = (): void => {
        socket.off("drain", done);
        socket.off("close", done);
        resolve();
      };
      socket.on("drain", done);
      socket.on("close", done);
    });
  }

  override closeStdin(): void {
    if (!this.over) this.#socket.end();
  }
}
