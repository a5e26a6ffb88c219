// HTTP to the API server: bounded in number, timed, obeying 429. On node:https with connections that are kept; `fetch`
// stopped making progress in one run of four with client certificates, a watch and 32 requests at once.
import http, { type IncomingMessage } from "node:http";
import https from "node:https";
import * as v from "valibot";
import { CanceledError, ProviderError } from "../../../../broker/contract/index.ts";
import { onAbort } from "../../../../broker/link/on-abort.ts";
import type { Access } from "./access.ts";
import { BINARY, objectOf } from "./objects.ts";
import { frames, lines } from "./split.ts";
import { Unready } from "./unready.ts";

export interface ApiRequest {
  method: "GET" | "POST" | "DELETE" | "PATCH";
  path: string;
  body?: object;
  /** Of the body; default JSON. */
  contentType?: string;
  /** Of the answer; default JSON. */
  accept?: string;
  /** What must be allowed for it, as a verb and a resource: where that was so before, a refusal is asked about again. */
  right?: string;
}

export interface ApiReply {
  status: number;
  body: unknown;
  /** An earlier try had no answer: what this one refuses may be there from that one. */
  afterUnanswered?: true;
}

export interface TransportLimits {
  /** At once; the others wait in their order, those that read before all that write. */
  maxRequests: number;
  requestTimeoutMs: number;
}

/** Tries of one request, where the server said that it did nothing (429, 401), or the name makes it harmless. A server that
 * has just started is asked for as long as that takes. */
const MAX_TRIES = 8;
/** An API server that restarts is away for some ten seconds; a burst is not to end with it. */
const UNANSWERED_MS = 60_000;
const RETRY_BASE_MS = 100;
const RETRY_MAX_MS = 5_000;
const MAX_REPLY_BYTES = 64 * 1024 * 1024;

type Sent = { status: number; body: unknown; retryAfterMs: number | undefined };

export class Transport {
  readonly #access: Access;
  readonly #unready = new Unready();
  readonly #limits: TransportLimits;
  readonly #agent: https.Agent | http.Agent;
  /** Who waits for a place. */
  readonly #reads: (() => void)[] = [];
  readonly #writes: (() => void)[] = [];
  #running = 0;
  /** Until then the server has asked us to be quiet: performance.now() ms. */
  #quietUntil = 0;
  /** Requests by what became of them, for figures. */
  readonly counters = { sent: 0, throttled: 0, failed: 0 };

  constructor(access: Access, limits: TransportLimits) {
    this.#access = access;
    this.#limits = limits;
    const options = { keepAlive: true, maxSockets: limits.maxRequests, scheduling: "lifo" as const };
    this.#agent = access.server.protocol === "http:" ? new http.Agent(options) : new https.Agent(options);
  }

  close(): void {
    this.#agent.destroy();
    this.#access.close();
  }

  /** Answers whatever status the server gave at last. `repeatable`: may be sent again though it is unknown what became
   * of it. Throws CanceledError, and ProviderError (reason `unreachable`) where no answer could be had. */
  async request(request: ApiRequest, signal: AbortSignal, repeatable: boolean): Promise<ApiReply> {
    await this.#enter(request.method === "GET", signal);
    try {
      return await this.#tryUntilAnswered(request, signal, repeatable);
    } finally {
      this.#leave();
    }
  }

  async #tryUntilAnswered(request: ApiRequest, signal: AbortSignal, repeatable: boolean): Promise<ApiReply> {
    let refused = false;
    let unanswered = false;
    const giveUpAt = performance.now() + UNANSWERED_MS;
    for (let tries = 1; ; tries++) {
      await wait(this.#quietUntil - performance.now(), signal);
      let pauseMs = backoffMs(tries);
      try {
        const { status, body, retryAfterMs } = await this.#send(request, signal, refused);
        const unready = request.right !== undefined && this.#unready.mayPass(request.right, status, body);
        const late = gaveUp(status, body);
        unanswered ||= late;
        const harmless = repeatable && (status === 503 || late);
        const again = status === 429 || (status === 401 && !refused) || harmless;
        if (!unready && (!again || tries === MAX_TRIES)) {
          return { status, body, ...(unanswered ? { afterUnanswered: true } : {}) };
        }
        refused ||= status === 401;
        if (retryAfterMs !== undefined) pauseMs = retryAfterMs * (1 + Math.random() / 4);
        if (status === 429) this.#throttled(pauseMs);
      } catch (error) {
        if (signal.aborted) throw canceled();
        this.counters.failed++;
        unanswered = true;
        const last = !repeatable || performance.now() + pauseMs > giveUpAt;
        if (last || error instanceof ProviderError) throw unreachable(error);
      }
      await wait(pauseMs, signal);
    }
  }

  #throttled(pauseMs: number): void {
    this.counters.throttled++;
    this.#quietUntil = Math.max(this.#quietUntil, performance.now() + pauseMs);
  }

  async #send(request: ApiRequest, signal: AbortSignal, anew: boolean): Promise<Sent> {
    this.counters.sent++;
    const timeout = AbortSignal.timeout(this.#limits.requestTimeoutMs);
    const either = AbortSignal.any([signal, timeout]);
    const response = await this.#open(request, either, this.#agent, anew);
    const parts: Buffer[] = [];
    let size = 0;
    for await (const part of response) {
      const bytes = bufferOf(part);
      size += bytes.length;
      if (size > MAX_REPLY_BYTES) throw new ProviderError("the API server's answer is too long");
      parts.push(bytes);
    }
    if (either.aborted) throw either.reason;
    const after = Number(response.headers["retry-after"]);
    const retryAfterMs = Number.isFinite(after) && after >= 0 ? Math.min(after, 60) * 1000 : undefined;
    const body = parse(Buffer.concat(parts), isBinary(response));
    return { status: response.statusCode ?? 0, body, retryAfterMs };
  }

  async #open(
    { method, path, body, contentType = "application/json", accept = "application/json" }: ApiRequest,
    signal: AbortSignal,
    agent: https.Agent | http.Agent | undefined,
    anew = false,
  ): Promise<IncomingMessage> {
    const { server, proxied } = this.#access;
    const credentials = await this.#access.credentials(anew);
    const content = body === undefined ? undefined : Buffer.from(JSON.stringify(body));
    const headers = {
      ...credentials.headers,
      accept,
      "user-agent": "sandmesh-pool",
      ...(content === undefined ? {} : { "content-type": contentType, "content-length": content.length }),
    };
    const { request } = server.protocol === "http:" ? http : https;
    const base = server.pathname.replace(/\/$/, "");
    return new Promise((resolve, reject) => {
      const sent = request(
        {
          ...credentials,
          agent: proxied ? credentials.agent : agent,
          host: server.hostname.replace(/^\[|\]$/g, ""),
          port: server.port,
          path: `${base}${path}`,
          method,
          headers,
          signal,
        },
        resolve,
      );
      sent.on("error", reject);
      sent.end(content);
    });
  }

  /** What a watch tells, until the server or `signal` ends it, or nothing came for `silentMs`: lines of JSON, or frames of
   * what else was asked for. A connection of its own, beside `maxRequests`. Throws ProviderError; `status` 200 is the only
   * one that has any. */
  async *watch(
    request: Pick<ApiRequest, "path" | "accept">,
    signal: AbortSignal,
    silentMs: number,
  ): AsyncGenerator<string | Uint8Array, void> {
    const silence = new AbortController();
    let timer = setTimeout(() => silence.abort(), silentMs);
    try {
      const either = AbortSignal.any([signal, silence.signal]);
      const response = await this.#open({ method: "GET", ...request }, either, undefined);
      if (response.statusCode !== 200) {
        response.resume();
        throw new WatchRefused(response.statusCode ?? 0);
      }
      const split = isBinary(response) ? frames() : lines();
      for await (const part of response) {
        clearTimeout(timer);
        timer = setTimeout(() => silence.abort(), silentMs);
        yield* split(bufferOf(part));
      }
    } finally {
      clearTimeout(timer);
      silence.abort();
    }
  }

  /** `first`: who reads is seldom and in haste. A list that stood behind thousands of creates was late for its time limit. */
  async #enter(first: boolean, signal: AbortSignal): Promise<void> {
    if (signal.aborted) throw canceled();
    if (this.#running < this.#limits.maxRequests) {
      this.#running++;
      return;
    }
    const waiting = first ? this.#reads : this.#writes;
    // The place is handed over, so that nobody comes between.
    await new Promise<void>((resolve, reject) => {
      const go = (): void => {
        unhear();
        resolve();
      };
      const unhear = onAbort(signal, () => {
        const at = waiting.indexOf(go);
        if (at !== -1) waiting.splice(at, 1);
        reject(canceled());
      });
      waiting.push(go);
    });
  }

  #leave(): void {
    const next = this.#reads.shift() ?? this.#writes.shift();
    if (next === undefined) this.#running--;
    else next();
  }
}

/** The server's answer to a watch was not 200. */
export class WatchRefused extends Error {
  readonly status: number;
  constructor(status: number) {
    super(`the watch was answered with status ${status}`);
    this.status = status;
  }
}

/** It answers for an etcd that did not in time, or had no leader: what was asked for may have been done all the same. */
function gaveUp(status: number, body: unknown): boolean {
  if (status !== 500 && status !== 504) return false;
  const said = v.safeParse(v.object({ reason: v.optional(v.string()), message: v.string() }), body);
  if (!said.success) return status === 504;
  const { reason, message } = said.output;
  return reason === "Timeout" || reason === "ServerTimeout" || /etcdserver: /.test(message);
}

const canceled = (): CanceledError => new CanceledError("the request to the API server was canceled");

function unreachable(cause: unknown): ProviderError {
  if (cause instanceof ProviderError) return cause;
  const message = cause instanceof Error ? cause.message : String(cause);
  return new ProviderError(`the API server gave no answer: ${message}`, { reason: "unreachable", cause });
}

/** Doubling, with jitter, so that many do not come back at once. */
export function backoffMs(tries: number): number {
  return Math.min(RETRY_MAX_MS, RETRY_BASE_MS * 2 ** (tries - 1)) * (0.5 + Math.random());
}

const isBinary = ({ headers }: IncomingMessage): boolean =>
  headers["content-type"]?.startsWith(BINARY) === true;

/** Without a copy of what is one. */
const bufferOf = (part: unknown): Buffer => (Buffer.isBuffer(part) ? part : Buffer.from(String(part)));

function parse(answer: Buffer, binary: boolean): unknown {
  try {
    return binary ? objectOf(answer) : JSON.parse(answer.toString("utf8"));
  } catch {
    return undefined; // A proxy's page, or nothing: the status says it all.
  }
}

/** Throws CanceledError when the signal is aborted meanwhile. */
export function wait(ms: number, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.reject(canceled());
  if (ms <= 0) return Promise.resolve();
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      unhear();
      resolve();
    }, ms);
    const unhear = onAbort(signal, () => {
      clearTimeout(timer);
      reject(canceled());
    });
  });
}
