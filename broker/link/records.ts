// Durable records: one newest value for each key, in a JetStream stream that one writer at a time may write.
//
// Each write names the sequence that it must follow, so that writes are in order and a second writer is noticed. That
// alone does not fence: a stale writer's writes on their way name the sequences after the first one, too, and one of
// them can fit once others have written. So a new writer begins with more writes of its own, in one unbroken run, than
// any writer may have on their way (MAX_IN_FLIGHT): whatever a stale one has sent names a sequence that is past.
import { randomBytes } from "node:crypto";
import * as v from "valibot";
import {
  BusyError,
  ConflictError,
  ConnectionError,
  check,
  decode,
  InvalidRequestError,
  type SandmeshError,
  toSandmeshError,
  UnreachableError,
} from "../contract/index.ts";
import { apiErrorOf, callApi, collect, Inbox } from "./jetstream.ts";
import type { Link, Message } from "./link.ts";

export interface RecordsOptions {
  /** The stream's name; made if missing. */
  stream: string;
  /** Below `rec.v1.`, where the pool may write. */
  subjectPrefix: string;
  /** Copies in a cluster: 1, 3 or 5. */
  replicas?: number;
  /** How long a write, or opening, may take while the server is away; ms. Past it the writer is poisoned. */
  timeoutMs?: number;
}

export interface Records {
  /** Resolves when it is stored. Throws ConflictError when another writer has opened the stream, ConnectionError or
   * UnreachableError when the server was away for too long; each for this write and all later ones, since what is
   * stored is no longer known: open anew, and load. BusyError (too many waiting) leaves the writer whole. */
  put(key: string, data: Uint8Array): Promise<void>;
  /** Resolves when the record is gone for `load`; what marks it as gone goes a few seconds later. Throws as `put`. */
  delete(key: string): Promise<void>;
  /** The newest record of each live key (of one that is being written meanwhile: the old or the new one). Throws
   * DeadlineError, UnreachableError. */
  load(): Promise<Map<string, Uint8Array>>;
  /** Waits for the writes under way and lets go; the stream stays. */
  close(): Promise<void>;
}

/** Writes on their way at most, by whatever version of sandmesh: the fence counts on it. Never raise it. */
export const MAX_IN_FLIGHT = 256;
/** Writes that may wait in this process. */
export const MAX_WAITING = 64 * 1024;
const MAX_RECORD_BYTES = 512 * 1024;
const TOMBSTONE_TTL = "10s";
const KEY = /^[a-z0-9][a-z0-9-]*(\.[a-z0-9][a-z0-9-]*)*$/;
const FENCE_KEY = "_fence";
const WRITER = "Sandmesh-Writer";
const DELETED = "Sandmesh-Deleted";
const NO_BYTES = new Uint8Array(0);
const DEFAULT_TIMEOUT_MS = 30_000;
const CALL_TIMEOUT_MS = 5_000;
const RETRY_MS = 200;
/** JetStream's error codes: wrong last sequence; a stream of that name with another configuration. */
const WRONG_LAST_SEQUENCE = 10071;
const STREAM_EXISTS = 10058;

const ApiFailure = v.optional(
  v.looseObject({ err_code: v.optional(v.number()), description: v.optional(v.string()) }),
);
const PublishAnswer = v.looseObject({ seq: v.optional(v.number()), error: ApiFailure });
const StreamInfo = v.looseObject({
  state: v.optional(v.looseObject({ last_seq: v.number() })),
  error: ApiFailure,
});
const StoredMessage = v.looseObject({ message: v.optional(v.looseObject({ hdrs: v.optional(v.string()) })) });

interface Write {
  key: string;
  data: Uint8Array;
  deleted: boolean;
  /** The sequence it follows; set when it is sent. */
  after: number;
  resolve(): void;
  reject(error: SandmeshError): void;
}

/** Opens the stream as its one writer: from then on every earlier writer's writes are refused. */
export async function openRecords(link: Link, options: RecordsOptions): Promise<Records> {
  if (!/^rec\.v1\.[a-z0-9.-]+$/.test(options.subjectPrefix)) {
    throw new InvalidRequestError("subjectPrefix must be below rec.v1", { field: "subjectPrefix" });
  }
  if (!/^[A-Za-z0-9_-]{1,64}$/.test(options.stream)) {
    throw new InvalidRequestError("stream is not a valid name", { field: "stream" });
  }
  const records = new StreamRecords(link, options);
  try {
    await records.open();
  } catch (error) {
    await records.close();
    throw error;
  }
  return records;
}

class StreamRecords implements Records {
  readonly #link: Link;
  readonly #options: RecordsOptions;
  readonly #inbox: Inbox;
  readonly #acks: { reply: string; forget(): void };
  readonly #writer = randomBytes(8).toString("hex");
  readonly #inFlight = new Map<number, Write>();
  #waiting: Write[] = [];
  #head = 0;
  /** The sequence of the last write that was sent (or stored by others before us). */
  #last = 0;
  #poison: SandmeshError | undefined;
  #recovering = false;
  #closed = false;
  #idle: (() => void)[] = [];
  #watch: ReturnType<typeof setInterval> | undefined;
  #progressAt = performance.now();

  constructor(link: Link, options: RecordsOptions) {
    this.#link = link;
    this.#options = options;
    this.#inbox = new Inbox(link);
    this.#acks = this.#inbox.expect((message) => this.#acked(message));
    link.onStatus((connected) => {
      if (connected) void this.#recover();
    });
    // An acknowledgement can be lost without the connection: when nothing moves, ask what is stored.
    this.#watch = setInterval(() => {
      if (this.#inFlight.size > 0 && performance.now() - this.#progressAt > CALL_TIMEOUT_MS)
        void this.#recover();
    }, 1_000);
    this.#watch.unref();
  }

  get #timeoutMs(): number {
    return this.#options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
  }

  // Opening

  async open(): Promise<void> {
    const deadline = performance.now() + this.#timeoutMs;
    await this.#until(deadline, () => this.#makeStream());
    await this.#until(deadline, () => this.#fence());
  }

  /** Tries again while the server or its JetStream is away, or another writer breaks the fence's run. */
  async #until(deadline: number, attempt: () => Promise<void>): Promise<void> {
    for (;;) {
      try {
        return await attempt();
      } catch (error) {
        const passing = toSandmeshError(error).code;
        const again = passing === "unreachable" || passing === "deadline_exceeded" || passing === "conflict";
        if (!again || this.#closed || performance.now() + RETRY_MS > deadline) throw error;
        await new Promise((go) => setTimeout(go, RETRY_MS));
      }
    }
  }

  async #makeStream(): Promise<void> {
    const { stream, subjectPrefix, replicas = 1 } = this.#options;
    const config = {
      name: stream,
      subjects: [`${subjectPrefix}.>`],
      retention: "limits",
      discard: "old",
      storage: "file",
      num_replicas: replicas,
      max_msgs_per_subject: 1,
      max_msg_size: MAX_RECORD_BYTES + 1024,
      allow_direct: true,
      allow_msg_ttl: true,
      duplicate_window: 1_000_000_000,
    };
    let answer = await this.#call(`STREAM.CREATE.${stream}`, config);
    if (apiErrorOf(answer)?.err_code === STREAM_EXISTS)
      answer = await this.#call(`STREAM.UPDATE.${stream}`, config);
    const error = apiErrorOf(answer);
    if (error !== undefined) throw refusal(stream, error);
  }

  async #call(what: string, body: object): Promise<Record<string, unknown>> {
    return callApi(this.#link, this.#inbox, what, body, CALL_TIMEOUT_MS);
  }

  async #fence(): Promise<void> {
    this.#poison = undefined;
    // The first names no sequence, so that it lands whatever others do; the run begins after it.
    const subject = `${this.#options.subjectPrefix}.${FENCE_KEY}`;
    const answers = await collect(this.#link, this.#inbox, subject, NO_BYTES, CALL_TIMEOUT_MS, () => true);
    const { seq, error } = check(PublishAnswer, decode(answers[0]?.data ?? NO_BYTES));
    if (seq === undefined) throw new UnreachableError(`JetStream refuses a record: ${error?.description}`);
    this.#last = seq;
    const run: Promise<void>[] = [];
    for (let i = 0; i <= MAX_IN_FLIGHT; i++) run.push(this.#write(FENCE_KEY, NO_BYTES, false));
    await Promise.all(run.map((each) => each.catch(() => {})));
    if (this.#poison !== undefined) throw this.#poison;
  }

  // Writing

  put(key: string, data: Uint8Array): Promise<void> {
    if (data.length > MAX_RECORD_BYTES) {
      return Promise.reject(
        new InvalidRequestError(`a record of ${data.length} bytes; at most ${MAX_RECORD_BYTES}`, {
          field: "data",
        }),
      );
    }
    return this.#checkedWrite(key, data, false);
  }

  delete(key: string): Promise<void> {
    return this.#checkedWrite(key, NO_BYTES, true);
  }

  #checkedWrite(key: string, data: Uint8Array, deleted: boolean): Promise<void> {
    if (!KEY.test(key)) {
      return Promise.reject(
        new InvalidRequestError(`key ${JSON.stringify(key)} is not valid`, { field: "key" }),
      );
    }
    if (this.#closed) return Promise.reject(new ConnectionError("these records are closed"));
    return this.#write(key, data, deleted);
  }

  #write(key: string, data: Uint8Array, deleted: boolean): Promise<void> {
    if (this.#poison !== undefined) return Promise.reject(this.#poison);
    if (this.#waiting.length - this.#head >= MAX_WAITING) {
      return Promise.reject(new BusyError(`${MAX_WAITING} records wait to be written`));
    }
    return new Promise((resolve, reject) => {
      this.#waiting.push({ key, data, deleted, after: 0, resolve, reject });
      this.#pump();
    });
  }

  #pump(): void {
    while (!this.#recovering && this.#inFlight.size < MAX_IN_FLIGHT && this.#head < this.#waiting.length) {
      const write = this.#waiting[this.#head++];
      if (write === undefined) break;
      if (this.#inFlight.size === 0) this.#progressAt = performance.now();
      write.after = this.#last++;
      this.#inFlight.set(write.after, write);
      this.#send(write);
    }
    if (this.#head === this.#waiting.length) {
      this.#waiting = [];
      this.#head = 0;
    } else if (this.#head > 1024 && this.#head * 2 > this.#waiting.length) {
      this.#waiting = this.#waiting.slice(this.#head);
      this.#head = 0;
    }
  }

  #send(write: Write): void {
    const headers: Record<string, string> = {
      "Nats-Expected-Last-Sequence": String(write.after),
      [WRITER]: this.#writer,
    };
    if (write.deleted) {
      headers[DELETED] = "1";
      headers["Nats-TTL"] = TOMBSTONE_TTL;
    }
    const reply = `${this.#acks.reply}.${write.after}`;
    try {
      this.#link.publish(`${this.#options.subjectPrefix}.${write.key}`, write.data, { reply, headers });
    } catch (error) {
      this.#fail(toSandmeshError(error));
    }
  }

  #acked(message: Message): void {
    const { subject, data } = message;
    const after = Number(subject.slice(subject.lastIndexOf(".") + 1));
    const write = this.#inFlight.get(after);
    if (write === undefined) return;
    if (message.header("Status") === "503") {
      void this.#recover();
      return;
    }
    let answer: v.InferOutput<typeof PublishAnswer>;
    try {
      answer = check(PublishAnswer, decode(data));
    } catch (error) {
      this.#fail(toSandmeshError(error));
      return;
    }
    if (answer.error !== undefined) this.#refused(answer.error);
    else if (answer.seq !== after + 1) this.#fail(this.#stale(`stored as ${answer.seq}, not ${after + 1}`));
    else this.#done(write);
  }

  #done(write: Write): void {
    this.#inFlight.delete(write.after);
    this.#progressAt = performance.now();
    write.resolve();
    this.#pump();
    if (this.#inFlight.size === 0) for (const idle of this.#idle.splice(0)) idle();
  }

  #refused(error: { err_code?: number; description?: string }): void {
    const { err_code, description = "no reason given" } = error;
    if (err_code === WRONG_LAST_SEQUENCE) this.#fail(this.#stale(description));
    else this.#fail(new UnreachableError(`JetStream refuses a record: ${description}`));
  }

  #stale(why: string): SandmeshError {
    return new ConflictError(`another writer has opened the stream ${this.#options.stream} (${why})`, {
      reason: "fenced",
    });
  }

  /** Poisons the writer: what is on its way, what waits and what comes fails with this. */
  #fail(error: SandmeshError): void {
    if (this.#poison !== undefined) return;
    this.#poison = error;
    const all = [...this.#inFlight.values(), ...this.#waiting.slice(this.#head)];
    this.#inFlight.clear();
    this.#waiting = [];
    this.#head = 0;
    for (const write of all) write.reject(error);
    for (const idle of this.#idle.splice(0)) idle();
  }

  // After a lost connection or acknowledgement

  /** Asks how far the stream has come, takes what is stored for acknowledged, and sends the rest again: each names the
   * sequence that it follows, so that none can be stored twice. */
  async #recover(): Promise<void> {
    if (this.#recovering || this.#inFlight.size === 0 || this.#poison !== undefined) return;
    this.#recovering = true;
    const deadline = this.#progressAt + this.#timeoutMs;
    try {
      await this.#until(deadline, () => this.#compare());
    } catch (error) {
      this.#fail(toSandmeshError(error));
    } finally {
      this.#recovering = false;
      this.#pump();
    }
  }

  async #compare(): Promise<void> {
    const { stream } = this.#options;
    const { state, error } = check(StreamInfo, await this.#call(`STREAM.INFO.${stream}`, {}));
    if (state === undefined)
      throw new UnreachableError(`JetStream does not tell ${stream}: ${error?.description}`);
    const last = state.last_seq;
    const [oldest] = this.#inFlight.keys();
    if (oldest === undefined) return;
    const ours = last === oldest || (last > oldest && last <= this.#last && (await this.#wrote(last)));
    if (!ours) {
      this.#fail(this.#stale(`it is at ${last}, we were at ${oldest}`));
      return;
    }
    this.#progressAt = performance.now();
    const resend: Write[] = [];
    for (const write of [...this.#inFlight.values()]) {
      if (write.after < last) this.#done(write);
      else resend.push(write);
    }
    for (const write of resend) this.#send(write);
  }

  async #wrote(sequence: number): Promise<boolean> {
    const answer = await this.#call(`STREAM.MSG.GET.${this.#options.stream}`, { seq: sequence });
    const { message } = check(StoredMessage, answer);
    return Buffer.from(message?.hdrs ?? "", "base64")
      .toString("latin1")
      .includes(`${WRITER}: ${this.#writer}`);
  }

  // Reading

  async load(): Promise<Map<string, Uint8Array>> {
    const records = new Map<string, Uint8Array>();
    // A copy of the stream that lags must not pass for the whole: read on until the last write is seen.
    const deadline = performance.now() + this.#timeoutMs;
    let from = 1;
    while (from <= this.#last) {
      const batch = await this.#batch(from);
      for (const message of batch) {
        const sequence = Number(message.header("Nats-Sequence"));
        if (Number.isInteger(sequence)) from = Math.max(from, sequence + 1);
        this.#take(records, message);
      }
      if (batch.length === 0) {
        if (await this.#isEmptyFrom(from)) break;
        if (performance.now() > deadline) throw new UnreachableError("the stream's copy does not catch up");
        await new Promise((go) => setTimeout(go, RETRY_MS));
      }
    }
    return records;
  }

  async #batch(from: number): Promise<Message[]> {
    const { stream, subjectPrefix } = this.#options;
    const body = { seq: from, batch: 500, max_bytes: 4 * 1024 * 1024, next_by_subj: `${subjectPrefix}.>` };
    const isLast = (message: Message) => message.header("Status") !== undefined;
    const messages = await collect(
      this.#link,
      this.#inbox,
      `$JS.API.DIRECT.GET.${stream}`,
      Buffer.from(JSON.stringify(body)),
      CALL_TIMEOUT_MS,
      isLast,
    );
    const end = messages.pop();
    const status = end?.header("Status");
    if (status !== "204" && status !== "404") {
      throw new UnreachableError(`JetStream does not give the records: status ${status}`);
    }
    return messages;
  }

  /** Whether the stream's leader has nothing from there on (what was there last may have been a mark that ended). */
  async #isEmptyFrom(from: number): Promise<boolean> {
    const { stream, subjectPrefix } = this.#options;
    const body = { seq: from, next_by_subj: `${subjectPrefix}.>` };
    const answer = await this.#call(`STREAM.MSG.GET.${stream}`, body);
    return apiErrorOf(answer)?.code === 404;
  }

  #take(records: Map<string, Uint8Array>, message: Message): void {
    const subject = message.header("Nats-Subject") ?? "";
    const key = subject.slice(this.#options.subjectPrefix.length + 1);
    if (key === FENCE_KEY) return;
    if (message.header(DELETED) === undefined) records.set(key, message.data);
    else records.delete(key);
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    if (this.#inFlight.size > 0) await new Promise<void>((idle) => this.#idle.push(idle));
    clearInterval(this.#watch);
    this.#poison ??= new ConnectionError("these records are closed");
    this.#acks.forget();
    this.#inbox.close();
  }
}

function refusal(stream: string, error: { description?: string }): SandmeshError {
  return new ConflictError(
    `JetStream refuses the stream ${stream}: ${error.description ?? "no reason given"}`,
  );
}
