// Subscriptions whose makers are told where the server refuses them.
import type { SandmeshError } from "../contract/core.ts";
import type { Subscription } from "./link.ts";

type Refused = (error: SandmeshError) => void;

interface Made {
  readonly subject: string;
  readonly stop: () => void;
  readonly refused: Refused;
}

export class Subscribed {
  readonly #all = new Set<Made>();
  /** In the order in which the server gets them, each with a ping behind it, also those that were ended meanwhile. */
  readonly #unanswered = new Set<Made>();

  /** `stop` ends it; `ping` sends a ping behind it, and calls `answered` in the turn in which its answer is read, or with the
   * loss of the connection. */
  add(
    subject: string,
    refused: Refused,
    stop: () => void,
    ping: (answered: () => void) => void,
  ): Subscription {
    const made = { subject, stop, refused };
    this.#all.add(made);
    this.#unanswered.add(made);
    ping(() => this.#unanswered.delete(made));
    return {
      unsubscribe: () => {
        this.#all.delete(made);
        stop();
      },
    };
  }

  /** Those of that subject. Answers whether there were any. */
  refuse(subject: string, why: () => SandmeshError): boolean {
    const ofSubject = (made: Made) => made.subject === subject;
    const concerned = [...this.#all].filter(ofSubject);
    for (const made of concerned) this.#tell(made, why());
    return concerned.length > 0 || [...this.#unanswered].some(ofSubject);
  }

  /** The server names no subject where there are too many. It answers in order, so that it is the oldest one whose ping was not
   * answered; behind a reconnect, at which all were made anew, it may be any, and all are told. */
  refuseOne(why: (subject: string) => SandmeshError): boolean {
    const [oldest] = this.#unanswered;
    const concerned = oldest === undefined ? [...this.#all] : [oldest];
    for (const made of concerned) this.#tell(made, why(made.subject));
    return concerned.length > 0;
  }

  #tell(made: Made, error: SandmeshError): void {
    if (!this.#all.delete(made)) return;
    // It would be asked for anew at each reconnect.
    made.stop();
    made.refused(error);
  }
}
