// What a reader still says of a command that has ended: how much it has of what was sent to it before the end frame.
import type { OutputStream } from "../contract/index.ts";
import { Alarm } from "./alarm.ts";
import type { Command } from "./command.ts";
import type { Context } from "./context.ts";
import type { CreditTaker, Flow, StreamName } from "./flow.ts";

/** Without a word for this long nothing more is heard of it; what it has not said that it has stays held. */
const SILENT_MS = 60_000;

/** Of readers that were sent all. Few commands have any: a field would be paid by each of the thousands that are remembered. */
const receipts = new WeakMap<Command, Set<Receipt>>();

export const receiptsOf = (command: Command): Receipt[] => [...(receipts.get(command) ?? [])];

export class Receipt implements CreditTaker {
  /** The reader's. */
  readonly name: string;
  readonly #context: Context;
  readonly #flow: Flow;
  readonly #token: string;
  readonly #command: Command;
  readonly #received: Record<OutputStream, number>;
  readonly #alarm = new Alarm(() => this.end());

  /** `received`: what the reader has said that it has. */
  constructor(
    context: Context,
    flow: Flow,
    command: Command,
    reader: { name: string; token: string; received: Record<OutputStream, number> },
  ) {
    this.name = reader.name;
    this.#context = context;
    this.#flow = flow;
    this.#token = reader.token;
    this.#command = command;
    this.#received = reader.received;
  }

  begin(): void {
    this.#flow.open(this.#token, this);
    receipts.set(this.#command, (receipts.get(this.#command) ?? new Set()).add(this));
    this.#context.deadlines.set(this.#alarm, SILENT_MS);
    this.#letGo();
  }

  position(stream: OutputStream): number {
    return this.#received[stream];
  }

  credit(stream: StreamName, received: number): void {
    if (stream === "data" || received <= this.#received[stream]) return;
    this.#received[stream] = Math.min(received, this.#command.buffer(stream).end);
    this.#context.deadlines.set(this.#alarm, SILENT_MS);
    this.#letGo();
  }

  left(): void {
    this.end();
  }

  end(): void {
    this.#context.deadlines.clear(this.#alarm);
    this.#flow.close(this.#token, this);
    receipts.get(this.#command)?.delete(this);
    // What the others have.
    this.#letGo();
  }

  /** Where nothing is known of any reader, of nothing. */
  #letGo(): void {
    const sent = receiptsOf(this.#command);
    if (sent.length > 0) this.#command.letGo(sent);
  }
}
