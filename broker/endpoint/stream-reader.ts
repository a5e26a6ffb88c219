// A reader of a command that streams: as far as its credit and the connection's budget go, from its own offsets.
import { BusyError, OutputGoneError, type OutputStream } from "../contract/index.ts";
import { Alarm } from "./alarm.ts";
import type { Command, Listener } from "./command.ts";
import type { Context, Reply } from "./context.ts";
import { type CreditTaker, type Flow, type StreamName, tokenOf, Window } from "./flow.ts";
import { type Delivered, endFrame } from "./frames.ts";
import { Receipt } from "./receipt.ts";

/** Output of a short command waits this long for its end, so that the answer is one message. */
const GATHER_MS = 50;
/** A reader that gives no credit for this long is given up, where others read the same command: they go on. */
const STALL_SHARED_MS = 5_000;
/** And for this long where it is the only one; then the command goes on into what is held. */
export const STALL_MS = 60_000;

const NOTHING = new Uint8Array(0);
const STREAMS: readonly OutputStream[] = ["stdout", "stderr"];

export interface Reading {
  /** Bytes ahead of the reader. */
  credit: number;
  from: Record<OutputStream, number>;
  /** The token of its first question, where this is a further one. */
  name: string | undefined;
}

export class StreamReader implements Listener, CreditTaker {
  /** The same for all questions of one who reads. */
  readonly name: string;
  readonly #context: Context;
  readonly #flow: Flow;
  readonly #command: Command;
  readonly #reply: Reply;
  readonly #token: string;
  readonly #from: Reading["from"];
  readonly #windows: Record<OutputStream, Window>;
  readonly #gather = new Alarm(() => this.#flowing());
  readonly #stall = new Alarm(() => this.#stalled());
  readonly #again = () => this.#pump();
  #sinceMs = 0;
  #begun = false;
  #pumping = false;
  #over = false;
  /** Streams whose end was told. */
  readonly #endTold = new Set<OutputStream>();

  constructor(context: Context, flow: Flow, command: Command, reply: Reply, { credit, from, name }: Reading) {
    this.#context = context;
    this.#flow = flow;
    this.#command = command;
    this.#reply = reply;
    this.#token = tokenOf(reply.subject);
    this.name = name ?? this.#token;
    this.#from = from;
    this.#windows = { stdout: new Window(from.stdout, credit), stderr: new Window(from.stderr, credit) };
  }

  begin(): void {
    this.#flow.open(this.#token, this);
    this.#command.listen(this);
    if (this.#command.over) {
      this.ended();
      return;
    }
    // Told now: the command may write nothing more for long.
    if (STREAMS.some((stream) => this.#lacksBytes(stream))) return;
    for (const stream of STREAMS)
      if (this.#unsent(stream) > 0 || this.#command.buffer(stream).eof) this.more(stream);
  }

  // What the command tells.

  started(): void {}

  more(stream: OutputStream): void {
    if (this.#over) return;
    if (this.#begun) this.#pumpSoon();
    else if (this.#unsent(stream) > this.#context.inlineBytes(this.#reply.encoding)) this.#flowing();
    else if (this.#gather.list === undefined) this.#gatherFor(this.#context.now() - this.#command.startedAt);
  }

  /** When all is taken that came together: larger chunks, and fewer. */
  #pumpSoon(): void {
    if (this.#pumping) return;
    this.#pumping = true;
    queueMicrotask(() => {
      this.#pumping = false;
      this.#pump();
    });
  }

  #gatherFor(ageMs: number): void {
    if (ageMs >= GATHER_MS) this.#flowing();
    else this.#context.deadlines.set(this.#gather, GATHER_MS);
  }

  #flowing(): void {
    this.#begun = true;
    this.#context.deadlines.clear(this.#gather);
    this.#pump();
  }

  ended(): void {
    if (this.#over) return;
    const { failure } = this.#command;
    if (failure !== undefined) this.#stop(failure);
    else this.#pump();
  }

  lag(): number | undefined {
    return this.#over ? undefined : Math.max(this.#unsent("stdout"), this.#unsent("stderr"));
  }

  position(stream: OutputStream): number {
    return this.#windows[stream].received;
  }

  /** Sent again from where the reader is known to be; it takes each byte once. */
  returned(): void {
    if (this.#over) return;
    let back = 0;
    for (const stream of STREAMS) back += this.#windows[stream].rewind();
    if (back > 0) this.#progress();
    this.#endTold.clear();
    this.#flow.give(back);
    this.#pump();
  }

  credit(stream: StreamName, received: number, until: number): void {
    if (stream === "data" || this.#over) return;
    this.#command.heard();
    const window = this.#windows[stream];
    const before = { until: window.until, received: window.received };
    this.#flow.give(window.credit(received, until));
    const more = window.until > before.until || window.received > before.received;
    if (more) this.#progress();
    // First, while the connection holds nothing of what is let go of: its memory is used again for what comes.
    this.#command.regulate();
    if (more) this.#pump();
  }

  /** Bytes that could be sent, had it the credit. */
  #unsent(stream: OutputStream): number {
    const sent = Math.max(this.#command.buffer(stream).start, this.#windows[stream].sent);
    return Math.max(0, this.#command.readable(stream) - sent);
  }

  #pump(): void {
    // While the connection is away the command waits, as for credit.
    if (this.#over || !this.#context.connected) return;
    const { over } = this.#command;
    if (this.#begun || (over && !this.#restFits())) {
      this.#begun = true;
      for (const stream of STREAMS) if (!this.#send(stream, over)) return;
    }
    if (over && this.#restFits()) {
      this.#finish();
      return;
    }
    if (this.#unsent("stdout") + this.#unsent("stderr") + this.#inFlight === 0) {
      this.#context.deadlines.clear(this.#stall);
    } else if (this.#begun && this.#stall.list === undefined) {
      this.#progress();
    }
    if (!over) this.#command.regulate();
  }

  /** Sends what may be sent of one stream; false where the reader is over. */
  #send(stream: OutputStream, commandOver: boolean): boolean {
    const window = this.#windows[stream];
    const buffer = this.#command.buffer(stream);
    const max = this.#context.chunkBytes(this.#reply.encoding);
    for (;;) {
      const unsent = this.#unsent(stream);
      if (commandOver && this.#restFits()) return true;
      if (unsent === 0) return this.#tellEnd(stream);
      if (this.#lacksBytes(stream)) return false;
      // What lies before was left out for the limit.
      if (window.sent < buffer.start) window.skip(buffer.start - window.sent);
      const offset = window.sent;
      const wanted = Math.min(unsent, max, window.until - offset);
      if (wanted <= 0) return true;
      const length = this.#flow.take(wanted, window, this.#again);
      if (length === 0) return true;
      window.sent = offset + length;
      const frame = { id: this.#command.id, stream, offset };
      if (!this.#context.chunk(this.#reply, frame, buffer.parts(offset, length), length)) {
        this.#close();
        return false;
      }
    }
  }

  /** Behind the stream's last byte, and once: the command itself may go on for long. */
  #tellEnd(stream: OutputStream): boolean {
    const { eof, end, keep } = this.#command.buffer(stream);
    // What is kept of a tail is known at the command's end.
    if (!eof || keep === "tail" || this.#endTold.has(stream)) return true;
    this.#endTold.add(stream);
    const offset = Math.max(end, this.#windows[stream].sent);
    const frame = { type: "chunk", id: this.#command.id, stream, offset, data: NOTHING, eof: true };
    if (this.#context.answer(this.#reply, frame)) return true;
    this.#close();
    return false;
  }

  /** Whether bytes that the reader is to have are not held any more: it is told so, and over. Where the tail is kept those
   * before were left out for the limit, and are no loss. */
  #lacksBytes(stream: OutputStream): boolean {
    const { start, keep } = this.#command.buffer(stream);
    const { sent } = this.#windows[stream];
    if (sent >= start || (keep === "tail" && !this.#command.outputGone)) return false;
    this.#stop(
      new OutputGoneError(
        `${stream} of ${this.#command.id} is held from offset ${start} on, not from ${sent}`,
        {
          sandbox: this.#context.sandbox,
          started: "yes",
        },
      ),
    );
    return true;
  }

  #restFits(): boolean {
    const max = this.#context.inlineBytes(this.#reply.encoding);
    return this.#unsent("stdout") <= max && this.#unsent("stderr") <= max;
  }

  #finish(): void {
    const { result } = this.#command;
    if (result === undefined) return;
    if (STREAMS.some((stream) => this.#lacksBytes(stream))) return;
    const out = { stdout: this.#rest("stdout"), stderr: this.#rest("stderr") };
    this.#context.answer(this.#reply, endFrame(this.#command, this.#context.incarnation, result, out));
    this.#awaitReceipt();
    // Last: others end by the room that this gives, and let go of what nobody needs.
    this.#close();
  }

  /** Of what is held no more from its beginning, as much as it says that it has goes, too. */
  #awaitReceipt(): void {
    if (!this.#begun || STREAMS.every((stream) => this.#command.buffer(stream).start === 0)) return;
    const received = { stdout: this.position("stdout"), stderr: this.position("stderr") };
    const { name } = this;
    new Receipt(this.#context, this.#flow, this.#command, { name, token: this.#token, received }).begin();
  }

  #rest(stream: OutputStream): Delivered {
    const buffer = this.#command.buffer(stream);
    const from = this.#from[stream];
    const at = Math.max(this.#windows[stream].sent, buffer.start);
    const rest = buffer.slice(at, buffer.end - at);
    const first = buffer.keep === "tail" ? Math.max(from, buffer.start) : from;
    return { from, first, upTo: at + rest.length, rest };
  }

  // A reader that does not read.

  #progress(): void {
    this.#sinceMs = this.#context.now();
    this.#context.deadlines.set(this.#stall, STALL_SHARED_MS);
  }

  get #inFlight(): number {
    return this.#windows.stdout.inFlight + this.#windows.stderr.inFlight;
  }

  /** Whether it is the reader's credit that is wanting, not the connection's budget. */
  #lacksCredit(): boolean {
    return STREAMS.some(
      (stream) => this.#unsent(stream) > 0 && this.#windows[stream].until <= this.#windows[stream].sent,
    );
  }

  #stalled(): void {
    if (this.#over) return;
    const waitedMs = this.#context.now() - this.#sinceMs;
    const lacks = this.#lacksCredit();
    if (this.#isLetGo(lacks, waitedMs)) {
      this.#giveUp(waitedMs);
      return;
    }
    if (waitedMs >= STALL_MS && this.#inFlight > 0) {
      // It may well be there, and only slow to say so; but it no longer keeps the others from the budget.
      for (const stream of STREAMS) this.#flow.give(this.#windows[stream].writeOff());
    }
    if (lacks || this.#inFlight > 0) this.#context.deadlines.set(this.#stall, STALL_SHARED_MS);
  }

  #isLetGo(lacksCredit: boolean, waitedMs: number): boolean {
    if (lacksCredit && this.#command.listeners.size > 1) return true;
    // Where memory is short, also before its credit is used up: written off, it would be sent as much again, and held.
    return waitedMs >= STALL_MS && (lacksCredit || (this.#command.tight && this.#inFlight > 0));
  }

  #giveUp(waitedMs: number): void {
    const { sandbox } = this.#context;
    this.#context.log.warn({ sandbox, command: this.#command.id, waitedMs }, "a reader has stalled");
    this.#leave("no credit came for the output; the command goes on, attach to read on");
  }

  /** Whoever reads has asked anew, since his way was cut. Told all the same: the questions may have come in another order. */
  replaced(): void {
    if (!this.#over) this.#leave("a later question of the same reader took this one's place");
  }

  /** Its command goes on: who wants that to end cancels it. */
  left(): void {
    this.#close();
  }

  #leave(why: string): void {
    const { sandbox } = this.#context;
    this.#stop(new BusyError(why, { sandbox, reason: "reader_stalled", started: "yes" }));
  }

  #stop(error: Error): void {
    this.#close();
    this.#context.refuse(this.#reply, error, "the command");
  }

  #close(): void {
    if (this.#over) return;
    this.#over = true;
    const { deadlines } = this.#context;
    deadlines.clear(this.#gather);
    deadlines.clear(this.#stall);
    this.#flow.close(this.#token, this);
    this.#flow.forget(this.#again);
    this.#command.unlisten(this);
    this.#flow.give(this.#inFlight);
  }
}
