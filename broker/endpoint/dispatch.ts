// From a message on the sandbox's subject to its handler: reply subject, decoding, checks, fence, answer.
import {
  CreditRequest,
  check,
  decode,
  encodingOf,
  isReplyFor,
  parse,
  sandboxWildcard,
  UnknownVerbError,
} from "../contract/index.ts";
import type { Message } from "../link/link.ts";
import type { Context, Reply } from "./context.ts";
import type { Execution } from "./exec.ts";
import type { Fenced } from "./fence.ts";
import type { Flow } from "./flow.ts";
import type { Looks } from "./looks.ts";
import type { Tenure } from "./tenure.ts";
import type { Route } from "./verbs.ts";

export class Dispatch {
  readonly #context: Context;
  readonly #flow: Flow;
  readonly #tenure: Tenure;
  readonly #execution: Execution;
  readonly #routes: Map<string, Route>;
  readonly #looks: Looks;
  /** Length of `sbx.v1.<tenant>.<sandbox>.`; the verb stands behind it. */
  readonly #prefix: number;

  constructor(
    context: Context,
    flow: Flow,
    tenure: Tenure,
    execution: Execution,
    routes: Map<string, Route>,
    looks: Looks,
  ) {
    this.#context = context;
    this.#flow = flow;
    this.#tenure = tenure;
    this.#execution = execution;
    this.#routes = routes;
    this.#looks = looks;
    this.#prefix = sandboxWildcard(context.tenant, context.sandbox).length - 1;
  }

  /** Never throws. */
  readonly handle = (message: Message): void => {
    const context = this.#context;
    if (context.over) return;
    context.counters.requests++;
    const verb = message.subject.slice(this.#prefix);
    if (verb === "credit") {
      this.#credit(message);
      return;
    }
    const subject = message.reply;
    if (!isReplyFor(subject, context.tenant, context.sandbox)) {
      this.#unanswerable(verb, subject);
      return;
    }
    this.#looks.heard(subject);
    if (verb === "sh") {
      this.#sh(message, subject);
      return;
    }
    const { data } = message;
    const reply: Reply = { subject, encoding: encodingOf(data) };
    const route = this.#routes.get(verb);
    try {
      if (route === undefined) throw new UnknownVerbError(`this daemon does not know the verb ${verb}`);
      const request: Fenced = Object(check(route.schema, decode(data)));
      this.#tenure.admit(
        request,
        route.mayHaveRun,
        () => this.#run(route, request, reply, data.length),
        (error) => context.refuse(reply, error, verb),
      );
    } catch (thrown) {
      context.refuse(reply, thrown, verb);
    }
  };

  #run(route: Route, request: Fenced, reply: Reply, bytes: number): void {
    const context = this.#context;
    try {
      const handled = route.handle(request, reply, bytes);
      if (handled instanceof Promise) {
        handled.then(
          (answer) => {
            if (answer !== undefined) context.answer(reply, answer);
          },
          (thrown) => context.refuse(reply, thrown, route.verb),
        );
      } else if (handled !== undefined) {
        context.answer(reply, handled);
      }
    } catch (thrown) {
      context.refuse(reply, thrown, route.verb);
    }
  }

  #credit(message: Message): void {
    try {
      const { token, stream, received, until, left } = parse(CreditRequest, message.data);
      if (left) this.#flow.left(token);
      else this.#flow.credit(token, stream, received, until);
    } catch (thrown) {
      const { sandbox, log } = this.#context;
      log.warn({ sandbox, error: thrown instanceof Error ? thrown.message : "" }, "a malformed credit");
    }
  }

  #sh(message: Message, subject: string): void {
    const { data } = message;
    const line = Buffer.from(data.buffer, data.byteOffset, data.length).toString("utf8");
    this.#execution.sh(line, message.header("Timeout-Ms"), { subject, encoding: "msgpack" });
  }

  /** Nothing is run for whom nobody can answer: a bug at the caller, or someone who wants the daemon to publish where
   * it should not. */
  #unanswerable(verb: string, reply: string | undefined): void {
    const { sandbox, log, counters } = this.#context;
    counters.unanswerable++;
    if (reply === undefined) log.warn({ sandbox, verb }, "a request without a reply subject was ignored");
    else log.warn({ sandbox, verb, reply }, "a request with a foreign reply subject was ignored");
  }
}
