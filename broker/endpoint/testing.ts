// For tests: an endpoint on a real server, with a pool that does as it is told and an executor that is scripted.
import {
  BootFailedError,
  type Bootstrap,
  controlSubject,
  decode,
  ENROL_WILDCARD,
  EnrolRequest,
  encode,
  newUuidV7,
  parse,
  parseSubject,
  READY_WILDCARD,
  Ready,
  sandboxSubject,
  throwIfError,
} from "../contract/index.ts";
import type { AnswerStream, Link, Message } from "../link/link.ts";
import { type TestServer, until } from "../server/testing.ts";
import { type Endpoint, type EndpointOptions, openEndpoint } from "./endpoint.ts";
import type { CommandSink, Executor, Files, ParsedExec, RunningCommand, Sessions } from "./executor.ts";

export const TENANT = "acme";

/** What the pool does for a daemon: enrolment, and hearing that it is ready. */
export class PoolDouble {
  readonly #server: TestServer;
  readonly #link: Link;
  readonly readies: { sandbox: string; generation: number; incarnation: string }[] = [];
  readonly enrolments: string[] = [];
  deadManMs = 60_000;
  /** Answers each `ready` with a grant of the next generation under this lease. */
  grants: string | undefined;
  refuse: Error | undefined;

  private constructor(server: TestServer, link: Link) {
    this.#server = server;
    this.#link = link;
  }

  static async start(server: TestServer): Promise<PoolDouble> {
    const link = await server.pool();
    const pool = new PoolDouble(server, link);
    link.subscribe(ENROL_WILDCARD, (message) => pool.#enrol(message));
    link.subscribe(READY_WILDCARD, (message) => pool.#ready(message));
    await link.flush();
    return pool;
  }

  #enrol(message: Message): void {
    const subject = parseSubject(message.subject);
    if (subject?.kind !== "enrol") return;
    const { tenant, sandbox } = subject;
    const { public_key } = parse(EnrolRequest, message.data);
    this.enrolments.push(public_key);
    if (this.refuse !== undefined) {
      message.respond(encode({ error: new BootFailedError(this.refuse.message, { sandbox }).toWire() }));
      return;
    }
    const jwt = this.#server.keys.mintSandbox({ tenant, sandbox, publicKey: public_key, ttlMs: 3600_000 });
    message.respond(encode({ jwt, dead_man_ms: this.deadManMs }));
  }

  #ready(message: Message): void {
    const subject = parseSubject(message.subject);
    if (subject?.kind !== "event" || subject.scope !== "sandbox") return;
    const { generation, incarnation } = parse(Ready, message.data);
    this.readies.push({ sandbox: subject.of, generation, incarnation });
    if (this.grants !== undefined) {
      this.word(subject.of, "grant", {
        lease: this.grants,
        generation: generation + 1,
        dead_man_ms: this.deadManMs,
      });
    }
  }

  word(sandbox: string, verb: string, body: object): void {
    this.#link.publish(controlSubject(TENANT, sandbox, verb), encode({ version: 1, ...body }));
  }
}

export function bootstrapOf(server: TestServer, sandbox: string, more: Partial<Bootstrap> = {}): Bootstrap {
  const { jwt, seed } = server.keys.mintBootstrap({ tenant: TENANT, sandbox, ttlMs: 60_000 });
  return {
    version: 1,
    urls: [server.url],
    tenant: TENANT,
    sandbox,
    generation: 1,
    jwt,
    seed,
    boot_timeout_ms: 10_000,
    ...more,
  };
}

/** A command whose every step the test takes. */
export class Scripted implements RunningCommand {
  readonly request: ParsedExec;
  readonly sink: CommandSink;
  readonly pauses: boolean[] = [];
  readonly signals: number[] = [];
  readonly sizes: [number, number][] = [];
  stdinText = "";
  stdinClosed = false;
  canceled: { as: unknown } | undefined;
  hungUp = false;
  pids: number[] = [];
  /** What `stdin` waits for. */
  gate: Promise<void> = Promise.resolve();

  constructor(request: ParsedExec, sink: CommandSink) {
    this.request = request;
    this.sink = sink;
  }

  get paused(): boolean {
    return this.pauses.at(-1) ?? false;
  }

  write(data: string | Uint8Array, stream: "stdout" | "stderr" = "stdout"): void {
    this.sink.output(stream, typeof data === "string" ? Buffer.from(data) : data);
  }

  exit(code = 0): void {
    this.sink.ended({ outcome: { type: "exited", code }, durationMs: 1 });
  }

  pause(paused: boolean): void {
    this.pauses.push(paused);
  }
  async stdin(data: Uint8Array): Promise<void> {
    await this.gate;
    this.stdinText += Buffer.from(data).toString();
  }
  closeStdin(): void {
    this.stdinClosed = true;
  }
  signal(signal: number): boolean {
    this.signals.push(signal);
    return true;
  }
  cancel(as?: unknown): void {
    this.canceled = { as };
  }
  resize(rows: number, cols: number): void {
    this.sizes.push([rows, cols]);
  }
  hangUp(): void {
    this.hungUp = true;
  }
  background(): Promise<number[]> {
    return Promise.resolve(this.pids);
  }
}

const notThere = (): never => {
  throw new Error("this test has none");
};

export class ScriptedExecutor implements Executor {
  readonly commands: Scripted[] = [];
  /** Called as a command begins. */
  script: (command: Scripted) => void = (command) => command.sink.started(7);
  files: Files = {
    read: notThere,
    write: notThere,
    stat: notThere,
    list: notThere,
    remove: notThere,
    mkdir: notThere,
    rename: notThere,
    pack: notThere,
    unpack: notThere,
    beneath: notThere,
  };
  sessions: Sessions = { open: notThere, close: async () => false, list: () => [] };
  closedWith: number | undefined;
  closing: Promise<void> = Promise.resolve();

  exec(request: ParsedExec, sink: CommandSink): RunningCommand {
    const command = new Scripted(request, sink);
    this.commands.push(command);
    this.script(command);
    return command;
  }

  get last(): Scripted {
    const command = this.commands.at(-1);
    if (command === undefined) throw new Error("no command was begun");
    return command;
  }

  async info() {
    return { version: "0", pid: 1, uid: 0, hostname: "h", cwd: "/", shells: [], cpus: 1, sessions: 0 };
  }

  close(graceMs: number): Promise<void> {
    this.closedWith = graceMs;
    return this.closing;
  }
}

/** A caller: requests to one sandbox, decoded. */
export class Caller {
  readonly link: Link;
  readonly sandbox: string;

  constructor(link: Link, sandbox: string) {
    this.link = link;
    this.sandbox = sandbox;
  }

  subject(verb: string): string {
    return sandboxSubject(TENANT, this.sandbox, verb);
  }

  /** One answer; throws the error that it carries. */
  async ask(verb: string, body: object = {}, encoding: "msgpack" | "json" = "msgpack") {
    const data = encode({ version: 1, ...body }, encoding);
    const message = await this.link.request(this.sandbox, this.subject(verb), data, { timeoutMs: 10_000 });
    const answer = decode(message.data);
    throwIfError(answer);
    return answer;
  }

  stream(verb: string, body: object = {}): Frames {
    const data = encode({ version: 1, ...body });
    return new Frames(this, this.link.stream(this.sandbox, this.subject(verb), data, { timeoutMs: 30_000 }));
  }

  credit(token: string, stream: string, received: number, until: number): void {
    this.link.publish(this.subject("credit"), encode({ version: 1, token, stream, received, until }));
  }
}

type Fields = Record<string, unknown>;

/** The frames of one stream, as they come. */
export class Frames {
  readonly chunks: { stream: string; offset: number; data: Uint8Array; eof: boolean }[] = [];
  readonly answers: AnswerStream;
  readonly #caller: Caller;
  /** The last frame, or the error. */
  last: Fields | undefined;
  readonly ended: Promise<Fields>;

  constructor(caller: Caller, answers: AnswerStream) {
    this.#caller = caller;
    this.answers = answers;
    this.ended = this.#read();
    this.ended.catch(() => {});
  }

  async #read(): Promise<Fields> {
    try {
      for await (const message of this.answers) {
        const frame = decode(message.data);
        if (frame.type === "chunk") {
          this.chunks.push({
            stream: String(frame.stream),
            offset: Number(frame.offset),
            data: Buffer.from(frame.data as Uint8Array),
            eof: frame.eof === true,
          });
          this.onChunk();
        } else {
          this.last = frame;
          return frame;
        }
      }
      throw new Error("no end frame");
    } finally {
      this.answers.close();
    }
  }

  /** Set to give credit as chunks arrive. */
  onChunk: () => void = () => {};

  /** Reads on: each chunk gives credit for `ahead` bytes more. */
  follow(ahead: number): this {
    this.onChunk = () => {
      const chunk = this.chunks.at(-1);
      if (chunk === undefined) return;
      const end = chunk.offset + chunk.data.length;
      this.credit(chunk.stream, end, end + ahead);
    };
    return this;
  }

  credit(stream: string, received: number, until: number): void {
    this.#caller.credit(this.answers.token, stream, received, until);
  }

  bytes(stream: string): number {
    return this.chunks.reduce((sum, chunk) => (chunk.stream === stream ? sum + chunk.data.length : sum), 0);
  }

  text(stream: string): string {
    const parts = this.chunks.filter((chunk) => chunk.stream === stream).map(({ data }) => data);
    const rest = this.last?.[stream];
    return Buffer.concat(rest instanceof Uint8Array ? [...parts, rest] : parts).toString();
  }
}

export interface Booted {
  endpoint: Endpoint;
  executor: ScriptedExecutor;
  caller: Caller;
  sandbox: string;
}

let count = 0;

/** Boots an endpoint with a scripted executor, granted by `pool` where that grants, and a user to talk to it. */
export async function boot(
  server: TestServer,
  user: Link,
  more: Partial<EndpointOptions> = {},
  executor = new ScriptedExecutor(),
): Promise<Booted> {
  const sandbox = `sb-test${++count}`;
  const endpoint = await openEndpoint({
    bootstrap: bootstrapOf(server, sandbox),
    executor,
    graceMs: 100,
    reconnect: { firstMs: 10, baseMs: 20, maxMs: 50 },
    ...more,
  });
  return { endpoint, executor, caller: new Caller(user, sandbox), sandbox };
}

export const newId = (): string => newUuidV7();
export { until };
