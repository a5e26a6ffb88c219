// The little of JetStream that records need, over a Link: API calls and their answers.
import * as v from "valibot";
import { DeadlineError, decode, toSandmeshError, UnreachableError } from "../contract/index.ts";
import { after } from "./after.ts";
import { Inbox } from "./inbox.ts";
import type { Link, Message } from "./link.ts";

const MAX_CALL_MS = 5_000;
const RETRY_MS = 200;

/** What stands in JetStream's answers where it refuses. */
export const ApiFailure = v.optional(
  v.looseObject({
    code: v.optional(v.number()),
    err_code: v.optional(v.number()),
    description: v.optional(v.string()),
  }),
);

/** A server or stream that is choosing its leader; the same again may succeed. */
export const isPassing = (failure: { code?: number | undefined }): boolean => failure.code === 503;

export class JetStream {
  readonly link: Link;
  readonly inbox: Inbox;
  readonly #callTimeoutMs: number;
  #closed = false;

  /** `timeoutMs`: how long JetStream may be away in all; one call is given up earlier. */
  constructor(link: Link, timeoutMs: number) {
    this.link = link;
    this.#callTimeoutMs = Math.min(MAX_CALL_MS, timeoutMs);
    this.inbox = new Inbox(link);
  }

  /** One call of the API. Throws UnreachableError or DeadlineError; what JetStream refuses is in the answer. */
  async call(what: string, body: object): Promise<Record<string, unknown>> {
    const data = Buffer.from(JSON.stringify(body));
    const messages = await this.collect(`$JS.API.${what}`, data, () => true);
    return decode(messages[0]?.data ?? new Uint8Array(0));
  }

  /** The answers to one message, up to and with the one that `isLast` says true of. */
  collect(
    subject: string,
    data: Uint8Array,
    isLast: (message: Message) => boolean,
    headers: Record<string, string> = {},
  ): Promise<Message[]> {
    return new Promise((resolve, reject) => {
      const messages: Message[] = [];
      const end = (settle: () => void) => {
        clear();
        forget();
        settle();
      };
      const { reply, forget } = this.inbox.expect((message) => {
        if (message.header("Status") === "503") {
          end(() =>
            reject(new UnreachableError("JetStream does not answer: it is off, or its stream has no leader")),
          );
          return;
        }
        messages.push(message);
        if (isLast(message)) end(() => resolve(messages));
      });
      const late = () =>
        new DeadlineError(`JetStream did not answer ${subject} within ${this.#callTimeoutMs} ms`);
      const clear = after(this.#callTimeoutMs, () => end(() => reject(late())));
      try {
        this.link.publish(subject, data, { reply, headers });
      } catch (error) {
        end(() => reject(error));
      }
    });
  }

  /** Tries again until `deadline` (of performance.now) while JetStream is away or, where `conflicts`, another writer
   * comes between. */
  async retry(deadline: number, attempt: () => Promise<void>, conflicts = false): Promise<void> {
    for (;;) {
      try {
        return await attempt();
      } catch (error) {
        const { code } = toSandmeshError(error);
        const passing =
          code === "unreachable" || code === "deadline_exceeded" || (conflicts && code === "conflict");
        if (!passing || this.#closed || performance.now() + RETRY_MS > deadline) throw error;
        await new Promise((go) => setTimeout(go, RETRY_MS));
      }
    }
  }

  close(): void {
    this.#closed = true;
    this.inbox.close();
  }
}
