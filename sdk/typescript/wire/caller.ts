// Requests with one answer, to the pool and to a sandbox: encoded, checked, and asked again where that is safe.
import {
  type AnswerOf,
  CanceledError,
  ConnectionError,
  DeadlineError,
  encode,
  encodeAhead,
  POOL_RESPONDER,
  POOL_VERBS,
  PoolUnavailableError,
  type PoolVerb,
  parseAnswer,
  poolSubject,
  type RequestOf,
  SANDBOX_VERBS,
  type SandboxVerb,
  type Schema,
  sandboxSubject,
  UnreachableError,
} from "../../../broker/contract/index.ts";
import type { Link } from "../../../broker/link/link.ts";
import { onlyWellFormed } from "../arguments.ts";
import { mayBeLost } from "./lost.ts";
import { News } from "./news.ts";
import { canceledBy, pause, throwIfAborted } from "./pause.ts";

/** Which sandbox, and under which lease; a person's handle has no fence. */
export interface Target {
  readonly sandbox: string;
  readonly fence: { lease?: string; generation?: number; incarnation?: string };
}

export interface CallOptions {
  /** Until the answer, over all tries; ms. */
  timeoutMs?: number;
  /** Ask again when no answer came for this long. Left out: as the verb bears it. */
  againAfterMs?: number;
  /** Ask once only. */
  once?: boolean;
  signal?: AbortSignal | undefined;
  /** How long a responder that is not there is waited for; ms. */
  absentMs?: number;
  /** Called when nobody listened. */
  onAbsent?: () => void;
  /** Called when it is asked again. */
  onAgain?: () => void;
}

/** What a request whose answer normally takes milliseconds may take. */
export const CALL_TIMEOUT_MS = 30_000;
/** A daemon or pool that reconnects is back within this, as a rule; longer absences are told. */
export const ABSENT_MS = 10_000;

/** After a cut an answer that was not lost is here by then, as a rule. */
const LATE_MS = 5_000;

/** Repeating these changes nothing. All others are sent once. */
const REPEATABLE: ReadonlySet<SandboxVerb> = new Set<SandboxVerb>([
  "ping",
  "info",
  "commands",
  "session_open",
  "session_close",
  "sessions",
  "stat",
  "glob",
  "search",
  "watch",
  "list",
  "resize",
  "cancel",
  "abort_transfer",
  "write",
  "unpack",
  "stdin",
]);

/** Bytes of any buffer may be sent; the schemas speak of what arrives. */
type Sendable<T> = { [K in keyof T]: Uint8Array<ArrayBuffer> extends T[K] ? T[K] | Uint8Array : T[K] };
export type PoolRequest<V extends PoolVerb> = Sendable<RequestOf<(typeof POOL_VERBS)[V]>>;
export type PoolAnswer<V extends PoolVerb> = AnswerOf<(typeof POOL_VERBS)[V]>;
/** Verbs with one answer. */
export type CallVerb = Exclude<SandboxVerb, "exec" | "attach" | "read" | "pack">;
export type SandboxRequest<V extends SandboxVerb> = Sendable<RequestOf<(typeof SANDBOX_VERBS)[V]>>;
export type SandboxAnswer<V extends CallVerb> = AnswerOf<(typeof SANDBOX_VERBS)[V]>;

export class Caller {
  readonly link: Link;
  readonly news: News;
  /** Set when the connection is closed for good, by us or by the server. */
  closed: { reason: Error | undefined } | undefined;

  constructor(link: Link) {
    this.link = link;
    this.news = new News(link);
    void link.closed.then((reason) => {
      this.closed = { reason };
    });
  }

  /** Asks the pool. Throws what it answers, PoolUnavailableError, DeadlineError, CanceledError, ConnectionError. */
  async pool<V extends PoolVerb>(
    verb: V,
    request: PoolRequest<V>,
    options: CallOptions = {},
  ): Promise<PoolAnswer<V>> {
    const subject = poolSubject(this.link.tenant, verb);
    try {
      const asked = { againAfterMs: 5_000, ...options };
      // Checked against this verb's own schema, which the compiler cannot follow through the table.
      return (await this.#call(
        POOL_RESPONDER,
        subject,
        request,
        POOL_VERBS[verb].answer,
        asked,
      )) as PoolAnswer<V>;
    } catch (error) {
      if (!(error instanceof UnreachableError)) throw error;
      throw new PoolUnavailableError("no pool answers at this mesh", { cause: error });
    }
  }

  /** Asks a sandbox, under the target's fence. Throws what it answers, UnreachableError, DeadlineError,
   * CanceledError, ConnectionError. */
  async sandbox<V extends CallVerb>(
    target: Target,
    verb: V,
    request: SandboxRequest<V>,
    options: CallOptions = {},
  ): Promise<SandboxAnswer<V>> {
    const subject = sandboxSubject(this.link.tenant, target.sandbox, verb);
    const again = REPEATABLE.has(verb) && options.once !== true ? { againAfterMs: 5_000 } : {};
    const fenced = { ...target.fence, ...request };
    const schema = SANDBOX_VERBS[verb].answer;
    const answer = await this.#call(target.sandbox, subject, fenced, schema, { ...again, ...options });
    return answer as SandboxAnswer<V>;
  }

  async #call(
    responder: string,
    subject: string,
    request: object,
    schema: Schema,
    options: CallOptions,
  ): Promise<unknown> {
    const { body, tail } = bodyOf(onlyWellFormed({ version: 1, ...request }));
    const patience = new Patience(options, (waitedMs) => this.#overdue(responder, waitedMs));
    for (;;) {
      this.throwIfUnusable();
      try {
        const { afterCutMs } = patience;
        const asked = { timeoutMs: patience.nextTryMs(), afterCutMs, ...tail, ...signalOf(options.signal) };
        const answer = await this.link.request(responder, subject, body, asked);
        return parseAnswer(schema, answer.data);
      } catch (error) {
        if (error instanceof UnreachableError) options.onAbsent?.();
        await patience.judge(error);
        options.onAgain?.();
      }
    }
  }

  #overdue(responder: string, waitedMs: number): DeadlineError {
    const message = `no answer from ${responder} within ${seconds(waitedMs)}${this.absence()}`;
    return new DeadlineError(message, responder === POOL_RESPONDER ? {} : { sandbox: responder });
  }

  /** Words for a message, where the server is away. */
  absence(): string {
    const { awayMs } = this.link;
    return awayMs === 0 ? "" : `; the server has been away for ${seconds(awayMs)}`;
  }

  /** Why nothing can be asked: the connection is closed, or its server is gone. */
  get unusable(): ConnectionError | undefined {
    if (this.closed === undefined) return this.link.gone;
    const detail = { reason: "closed", cause: this.closed.reason };
    return new ConnectionError("the connection to the mesh is closed", detail);
  }

  throwIfUnusable(): void {
    const error = this.unusable;
    if (error !== undefined) throw error;
  }
}

/** "3.2 s". */
export const seconds = (ms: number): string => `${Math.round(ms / 100) / 10} s`;

const LARGE_BYTES = 16 * 1024;
/** encodeAhead's limit. */
const MAX_FIELDS = 14;

/** A request, whose `data` is not copied where it is large. */
function bodyOf(request: object): { body: Uint8Array; tail?: { tail: Uint8Array[] } } {
  if (!("data" in request) || !(request.data instanceof Uint8Array) || request.data.length < LARGE_BYTES)
    return { body: encode(request) };
  const { data, ...fields } = request;
  if (!(data instanceof Uint8Array) || Object.keys(fields).length > MAX_FIELDS)
    return { body: encode(request) };
  return { body: encodeAhead(fields, "data", data.length), tail: { tail: [data] } };
}

const signalOf = (signal: AbortSignal | undefined) => (signal === undefined ? {} : { signal });

/** How often and how long one call is tried. */
class Patience {
  readonly #options: CallOptions;
  readonly #begunAt = Date.now();
  readonly #deadlineAt: number;
  readonly #overdue: (waitedMs: number) => DeadlineError;
  #absentSince: number | undefined;
  #waitMs = 50;

  constructor(options: CallOptions, overdue: (waitedMs: number) => DeadlineError) {
    this.#options = options;
    this.#overdue = overdue;
    this.#deadlineAt = this.#begunAt + (options.timeoutMs ?? CALL_TIMEOUT_MS);
  }

  /** What may be asked again is asked again as soon as the connection is back. */
  get afterCutMs(): number {
    return this.#options.againAfterMs === undefined ? LATE_MS : 0;
  }

  nextTryMs(): number {
    const left = Math.max(1, this.#deadlineAt - Date.now());
    return Math.min(left, this.#options.againAfterMs ?? left);
  }

  /** Returns when it is time to try again; throws `error` where it is not to be tried again. */
  async judge(error: unknown): Promise<void> {
    const { againAfterMs, signal } = this.#options;
    const absent = error instanceof UnreachableError;
    // An answer that carries one of these errors cannot be: only the link makes them.
    if (!absent && !(mayBeLost(error) && againAfterMs !== undefined)) throw this.#told(error);
    const now = Date.now();
    if (absent) {
      this.#absentSince ??= now;
      if (now - this.#absentSince > (this.#options.absentMs ?? ABSENT_MS)) throw error;
    } else {
      this.#absentSince = undefined;
    }
    if (now + this.#waitMs >= this.#deadlineAt) throw this.#told(error);
    if (!(error instanceof DeadlineError)) {
      await pause(this.#waitMs * (0.5 + Math.random()), signal);
      this.#waitMs = Math.min(this.#waitMs * 2, 1_000);
    }
    throwIfAborted(signal);
  }

  /** The link's own error speaks of the last try alone, and does not say why it was canceled. */
  #told(error: unknown): unknown {
    if (error instanceof CanceledError) return canceledBy(this.#options.signal);
    return error instanceof DeadlineError ? this.#overdue(Date.now() - this.#begunAt) : error;
  }
}
