// The request multiplexer: all answers come on one subscription, and a number in the reply subject finds the request.
import {
  CanceledError,
  ConnectionError,
  DeadlineError,
  type SandmeshError,
  UnreachableError,
} from "../contract/core.ts";
import type { Deadline, Deadlines } from "./deadlines.ts";
import type { Message, RequestOptions } from "./link.ts";
import { onAbort } from "./on-abort.ts";

/** One request or stream under way. */
export interface Pending extends Deadline {
  readonly subject: string;
  /** Where its answers come. */
  reply: string;
  answered(message: Message): void;
  failed(error: SandmeshError): void;
  /** The server says that nobody listens. */
  unanswerable(): void;
  /** The connection was lost since it was asked, and is back. */
  mayBeLost?(): void;
}

/** Reads the number after the last dot, in base 36, without making a string of it; -1 where it is none. */
function lastNumber(subject: Uint8Array): number {
  let value = 0;
  let scale = 1;
  for (let i = subject.length - 1; i >= 0; i--) {
    const c = subject[i] ?? 0;
    if (c === 0x2e) return scale === 1 ? -1 : value;
    const digit = c >= 0x30 && c <= 0x39 ? c - 0x30 : c >= 0x61 && c <= 0x7a ? c - 0x57 : -1;
    if (digit < 0) return -1;
    value += digit * scale;
    scale *= 36;
  }
  return -1;
}

function isText(bytes: Uint8Array, text: string): boolean {
  if (bytes.length !== text.length) return false;
  for (let i = 0; i < bytes.length; i++) if (bytes[i] !== text.charCodeAt(i)) return false;
  return true;
}

export class Requests {
  readonly deadlines: Deadlines;
  readonly #pending = new Map<number, Pending>();
  #last = 0;
  /** The last that was asked before the connection was lost. */
  #lastCut = 0;

  constructor(deadlines: Deadlines) {
    this.deadlines = deadlines;
  }

  /** Takes a request in, and answers its number. */
  add(pending: Pending): number {
    const number = ++this.#last;
    this.#pending.set(number, pending);
    return number;
  }

  remove(number: number, pending: Pending): void {
    this.#pending.delete(number);
    this.deadlines.clear(pending);
  }

  /** Whose answer came on `subject`. The number alone does not tell: a sandbox knows the connection's token of whoever asks it
   * anything, and may publish under its own name, so it could answer what another one, or the pool, was asked. */
  find(subject: Uint8Array): Pending | undefined {
    const pending = this.#pending.get(lastNumber(subject));
    return pending !== undefined && isText(subject, pending.reply) ? pending : undefined;
  }

  /** The connection was lost. */
  cut(): void {
    this.#lastCut = this.#last;
  }

  /** It is back. What was asked meanwhile is only being sent. */
  returned(): void {
    for (const [number, pending] of [...this.#pending]) if (number <= this.#lastCut) pending.mayBeLost?.();
  }

  /** Fails all, or those on one subject; whether there were any. */
  fail(error: () => SandmeshError, subject?: string): boolean {
    const concerned = [...this.#pending.values()].filter(
      (pending) => subject === undefined || pending.subject === subject,
    );
    for (const pending of concerned) pending.failed(error());
    return concerned.length > 0;
  }
}

export const unreachable = (responder: string): SandmeshError =>
  new UnreachableError(`nobody listens at ${responder}: it is gone, or not there yet`, about(responder));

export const overdue = (responder: string, timeoutMs: number): SandmeshError =>
  new DeadlineError(`no answer from ${responder} within ${timeoutMs} ms`, about(responder));

export const canceled = (responder: string): SandmeshError =>
  new CanceledError(`the request to ${responder} was canceled`, about(responder));

export const closedError = (): SandmeshError =>
  new ConnectionError("the connection is closed", { reason: "closed" });

const mayBeLost = (responder: string): SandmeshError =>
  new ConnectionError("the connection was lost and is back; the answer may be lost", about(responder));

function about(responder: string): { sandbox?: string } {
  return responder === "pool" ? {} : { sandbox: responder };
}

/** One answer, as a promise. */
export class SingleRequest implements Pending {
  dueMs = 0;
  list: Deadline["list"] = undefined;
  before: Deadline | undefined = undefined;
  after: Deadline | undefined = undefined;
  readonly promise: Promise<Message>;
  readonly number: number;
  readonly subject: string;
  reply = "";
  readonly #responder: string;
  readonly #timeoutMs: number;
  readonly #afterCutMs: number | undefined;
  readonly #requests: Requests;
  readonly #unhear: () => void;
  /** It is waited for since the connection's return, as long as `afterCutMs` says. */
  #isLast = false;
  #resolve!: (message: Message) => void;
  #reject!: (error: SandmeshError) => void;

  constructor(
    requests: Requests,
    responder: string,
    subject: string,
    { timeoutMs, signal, afterCutMs }: RequestOptions,
  ) {
    this.subject = subject;
    this.#responder = responder;
    this.#timeoutMs = timeoutMs;
    this.#afterCutMs = afterCutMs;
    this.#requests = requests;
    this.promise = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    this.number = requests.add(this);
    requests.deadlines.set(this, timeoutMs);
    this.#unhear = onAbort(signal, () => this.failed(canceled(this.#responder)));
  }

  #settle(): void {
    this.#requests.remove(this.number, this);
    this.#unhear();
  }

  answered(message: Message): void {
    this.#settle();
    this.#resolve(message);
  }

  failed(error: SandmeshError): void {
    this.#settle();
    this.#reject(error);
  }

  unanswerable(): void {
    this.failed(unreachable(this.#responder));
  }

  expired(): void {
    this.failed(this.#isLast ? mayBeLost(this.#responder) : overdue(this.#responder, this.#timeoutMs));
  }

  mayBeLost(): void {
    if (this.#afterCutMs === undefined) return;
    if (this.#afterCutMs === 0) this.failed(mayBeLost(this.#responder));
    else if (this.#requests.deadlines.sooner(this, this.#afterCutMs)) this.#isLast = true;
  }
}
