// Many answers to one request, buffered up to a bound until they are read.
import { BusyError, type SandmeshError } from "../contract/core.ts";
import type { Deadline } from "./deadlines.ts";
import type { AnswerStream, Message } from "./link.ts";
import { onAbort } from "./on-abort.ts";
import { canceled, overdue, type Pending, type Requests, unreachable } from "./requests.ts";

/** What may wait for the reader. Credit keeps a stream below a part of it; what passes it has ignored its credit. */
const MAX_BUFFERED_BYTES = 64 * 1024 * 1024;
const MAX_BUFFERED_MESSAGES = 64 * 1024;

interface Reader {
  resolve(result: IteratorResult<Message>): void;
  reject(error: SandmeshError): void;
}

export class Answers implements AnswerStream, AsyncIterator<Message>, Pending {
  dueMs = 0;
  list: Deadline["list"] = undefined;
  before: Deadline | undefined = undefined;
  after: Deadline | undefined = undefined;
  readonly number: number;
  readonly subject: string;
  reply = "";
  readonly token: string;
  readonly #requests: Requests;
  readonly #responder: string;
  readonly #timeoutMs: number;
  readonly #unhear: () => void;
  #buffer: Message[] = [];
  /** Those before it have been read. */
  #head = 0;
  #bytes = 0;
  #reader: Reader | undefined;
  #error: SandmeshError | undefined;
  #ended = false;

  constructor(
    requests: Requests,
    responder: string,
    subject: string,
    timeoutMs: number,
    signal: AbortSignal | undefined,
    tokenOf: (number: number) => string,
  ) {
    this.subject = subject;
    this.#requests = requests;
    this.#responder = responder;
    this.#timeoutMs = timeoutMs;
    this.number = requests.add(this);
    this.token = tokenOf(this.number);
    requests.deadlines.set(this, timeoutMs);
    this.#unhear = onAbort(signal, () => this.failed(canceled(this.#responder)));
  }

  answered(message: Message): void {
    this.#requests.deadlines.clear(this);
    const reader = this.#reader;
    if (reader !== undefined) {
      this.#reader = undefined;
      reader.resolve({ value: message, done: false });
      return;
    }
    this.#bytes += message.data.length;
    if (this.#bytes > MAX_BUFFERED_BYTES || this.#buffer.length - this.#head >= MAX_BUFFERED_MESSAGES) {
      this.failed(
        new BusyError(`${this.#responder} sent more than was read or asked for`, {
          reason: "reader_too_slow",
        }),
      );
      return;
    }
    this.#buffer.push(message);
  }

  failed(error: SandmeshError): void {
    if (this.#ended) return;
    this.#end();
    const reader = this.#reader;
    this.#reader = undefined;
    if (reader !== undefined) reader.reject(error);
    else this.#error = error;
  }

  unanswerable(): void {
    this.failed(unreachable(this.#responder));
  }

  expired(): void {
    this.failed(overdue(this.#responder, this.#timeoutMs));
  }

  #end(): void {
    this.#ended = true;
    this.#requests.remove(this.number, this);
    this.#unhear();
  }

  next(): Promise<IteratorResult<Message>> {
    const message = this.#buffer[this.#head];
    if (message !== undefined) {
      this.#shift(message);
      return Promise.resolve({ value: message, done: false });
    }
    if (this.#error !== undefined) {
      const error = this.#error;
      this.#error = undefined;
      return Promise.reject(error);
    }
    if (this.#ended) return Promise.resolve({ value: undefined, done: true });
    // Time runs only while someone waits for an answer: a reader that is slow gives no credit, and gets nothing.
    if (this.list === undefined) this.#requests.deadlines.set(this, this.#timeoutMs);
    return new Promise((resolve, reject) => {
      this.#reader = { resolve, reject };
    });
  }

  #shift(message: Message): void {
    this.#bytes -= message.data.length;
    this.#head++;
    if (this.#head === this.#buffer.length) {
      this.#buffer = [];
      this.#head = 0;
    } else if (this.#head > 1024) {
      this.#buffer = this.#buffer.slice(this.#head);
      this.#head = 0;
    }
  }

  close(): void {
    if (!this.#ended) this.#end();
    this.#buffer = [];
    this.#head = 0;
    this.#error = undefined;
    this.#reader?.resolve({ value: undefined, done: true });
    this.#reader = undefined;
  }

  return(): Promise<IteratorResult<Message>> {
    this.close();
    return Promise.resolve({ value: undefined, done: true });
  }

  [Symbol.asyncIterator](): AsyncIterator<Message> {
    return this;
  }
}
