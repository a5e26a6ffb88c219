// The little of JetStream that records need, over a Link: API calls, and an inbox for answers that come on a subject of
// the pool's own (JetStream's answers fit no `rep` subject: they are of no tenant).
import { randomBytes } from "node:crypto";
import { DeadlineError, decode, type SandmeshError, UnreachableError } from "../contract/index.ts";
import type { Link, Message, Subscription } from "./link.ts";

/** Every answer whose subject ends in a token that `expect` was called with. */
export class Inbox {
  readonly #prefix = `inb.v1.pool.${randomBytes(6).toString("hex")}`;
  readonly #handlers = new Map<string, (message: Message) => void>();
  readonly #subscription: Subscription;
  #last = 0;

  constructor(link: Link) {
    const tokenAt = this.#prefix.length + 1;
    this.#subscription = link.subscribe(`${this.#prefix}.>`, (message) => {
      const token = message.subject.slice(tokenAt);
      const dot = token.indexOf(".");
      this.#handlers.get(dot < 0 ? token : token.slice(0, dot))?.(message);
    });
  }

  /** A reply subject of its own; it may be followed by `.` and more. */
  expect(handle: (message: Message) => void): { reply: string; forget(): void } {
    const token = (++this.#last).toString(36);
    this.#handlers.set(token, handle);
    return { reply: `${this.#prefix}.${token}`, forget: () => this.#handlers.delete(token) };
  }

  close(): void {
    this.#subscription.unsubscribe();
    this.#handlers.clear();
  }
}

/** An error that JetStream answered with. */
export interface ApiError {
  code: number;
  err_code?: number;
  description?: string;
}

export function apiErrorOf(answer: Record<string, unknown>): ApiError | undefined {
  const { error } = answer;
  return typeof error === "object" && error !== null ? (error as ApiError) : undefined;
}

const noJetStream = (): SandmeshError =>
  new UnreachableError("JetStream does not answer: it is off, or its stream has no leader");

/** One call of JetStream's API. Throws UnreachableError or DeadlineError; what JetStream refuses is in the answer. */
export async function callApi(
  link: Link,
  inbox: Inbox,
  what: string,
  body: object,
  timeoutMs: number,
): Promise<Record<string, unknown>> {
  const data = Buffer.from(JSON.stringify(body));
  const messages = await collect(link, inbox, `$JS.API.${what}`, data, timeoutMs, () => true);
  return decode(messages[0]?.data ?? new Uint8Array(0));
}

/** The answers to one message, up to and with the one that `isLast` says true of. */
export function collect(
  link: Link,
  inbox: Inbox,
  subject: string,
  data: Uint8Array,
  timeoutMs: number,
  isLast: (message: Message) => boolean,
): Promise<Message[]> {
  return new Promise((resolve, reject) => {
    const messages: Message[] = [];
    const end = (settle: () => void) => {
      clearTimeout(timer);
      forget();
      settle();
    };
    const { reply, forget } = inbox.expect((message) => {
      if (message.header("Status") === "503") return end(() => reject(noJetStream()));
      messages.push(message);
      if (isLast(message)) end(() => resolve(messages));
    });
    const timer = setTimeout(
      () =>
        end(() => reject(new DeadlineError(`JetStream did not answer ${subject} within ${timeoutMs} ms`))),
      timeoutMs,
    );
    try {
      link.publish(subject, data, { reply });
    } catch (error) {
      end(() => reject(error));
    }
  });
}
