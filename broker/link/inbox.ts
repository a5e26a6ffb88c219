// An inbox for answers that come on a subject of the pool's own: those of NATS itself fit no `rep` subject, they are of no
// tenant.
import { randomBytes } from "node:crypto";
import type { Link, Message, Subscription } from "./link.ts";

/** Hands each answer to whom `expect` made its subject for. */
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
