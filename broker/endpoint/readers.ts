// Those who wait for a command without streaming: for its start, for its result, and `sh`.
import {
  describeOutcome,
  MAX_INLINE_BYTES,
  type OutputStream,
  type SandmeshError,
  shellStatus,
} from "../contract/index.ts";
import type { Command, Listener } from "./command.ts";
import { type Context, errorOf, type Reply } from "./context.ts";
import { type Delivered, endFrame } from "./frames.ts";

abstract class Waiter implements Listener {
  protected readonly context: Context;
  protected readonly command: Command;
  protected readonly reply: Reply;

  constructor(context: Context, command: Command, reply: Reply) {
    this.context = context;
    this.command = command;
    this.reply = reply;
  }

  /** Answers at once what can be answered, or waits for it. */
  begin(): void {
    this.command.listen(this);
    if (this.command.over) this.ended();
    else if (this.command.pid !== undefined) this.started();
  }

  started(): void {}
  more(_stream: OutputStream): void {}
  lag(): undefined {
    return undefined;
  }
  position(): number {
    return 0;
  }

  ended(): void {
    this.command.unlisten(this);
    const { result, failure } = this.command;
    if (result === undefined) this.refuse(failure);
    else this.answer(result);
  }

  protected refuse(failure: SandmeshError | undefined): void {
    this.context.refuse(this.reply, failure, "the command");
  }

  protected abstract answer(result: NonNullable<Command["result"]>): void;

  /** What one message carries of a stream, at its head or its tail as the caller wished. */
  protected inline(stream: OutputStream, max: number): Delivered {
    const buffer = this.command.buffer(stream);
    const first = buffer.keep === "tail" ? Math.max(buffer.start, buffer.end - max) : buffer.start;
    const rest = buffer.slice(first, max);
    return { from: 0, first, upTo: first + rest.length, rest };
  }
}

/** An exec without credit: one answer with the result. */
export class ResultWaiter extends Waiter {
  protected answer(result: NonNullable<Command["result"]>): void {
    const max = this.context.inlineBytes(this.reply.encoding);
    const out = { stdout: this.inline("stdout", max), stderr: this.inline("stderr", max) };
    this.context.answer(this.reply, endFrame(this.command, this.context.incarnation, result, out));
  }
}

/** A detached exec: answered at the start, or with the result where there was no start to tell of. */
export class StartWaiter extends ResultWaiter {
  override started(): void {
    const { id, pid } = this.command;
    this.command.unlisten(this);
    this.context.answer(this.reply, { type: "started", id, incarnation: this.context.incarnation, pid });
  }
}

/** `sh`: raw output, the rest in headers. */
export class ShellWaiter extends Waiter {
  protected answer(result: NonNullable<Command["result"]>): void {
    const max = Math.min(MAX_INLINE_BYTES, this.context.chunkBytes("msgpack"));
    const { rest } = this.inline("stdout", max);
    const headers: Record<string, string> = {
      "Sandmesh-Outcome": describeOutcome(result.outcome).replace(/[\r\n]+/g, " "),
      "Sandmesh-Status": String(shellStatus(result.outcome)),
    };
    const dropped = this.command.stdout.total - rest.length;
    if (dropped > 0) headers["Sandmesh-Dropped-Bytes"] = String(dropped);
    this.context.answerRaw(this.reply, rest, headers);
  }

  protected override refuse(failure: SandmeshError | undefined): void {
    const error = errorOf(failure, "sh");
    this.context.answerRaw(this.reply, Buffer.from(`${error.message}\n`), shellErrorHeaders(error.code));
  }
}

const NO_OUTPUT_STATUS = "126";

/** The headers of a shell line that could not be run. */
export const shellErrorHeaders = (code: string): Record<string, string> => ({
  "Sandmesh-Error": code,
  "Sandmesh-Status": NO_OUTPUT_STATUS,
});
