// Durable records: one newest value for each key, in a JetStream stream that one writer at a time may write.
//
// Each write names the sequence that it must follow (writer.ts), so that writes are in order and a second writer is
// noticed. That alone does not fence: a stale writer's writes on their way name the sequences after the first one, too,
// and one of them can fit once others have written. So a new writer begins with more writes of its own, in one unbroken
// run, than any writer may have on their way (MAX_IN_FLIGHT): whatever a stale one has sent names a sequence that is
// past. Writers hear each other's beginnings, so that a stale one need not write to learn that it is one.
import * as v from "valibot";
import {
  ConflictError,
  ConnectionError,
  check,
  decode,
  InvalidRequestError,
  type SandmeshError,
  UnreachableError,
} from "../contract/index.ts";
import { ApiFailure, isPassing, JetStream } from "./jetstream.ts";
import type { Link, Message, Subscription } from "./link.ts";
import { MAX_IN_FLIGHT, WRITER, Writer } from "./writer.ts";

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

export interface PutOptions {
  /** The stream forgets it by itself after this, unless it is written anew; ms, at least 1 s. Longer than the writer's
   * `timeoutMs`, which must still find its last write. */
  ttlMs?: number;
}

export interface Records {
  /** Resolves when it is stored. Throws ConflictError when another writer has opened the stream, ConnectionError or
   * UnreachableError when the server was away for too long; each for this write and all later ones, since what is
   * stored is no longer known: open anew, and load. BusyError (too many waiting) leaves the writer whole. */
  put(key: string, data: Uint8Array, options?: PutOptions): Promise<void>;
  /** Resolves when the record is gone for `load`; what marks it as gone goes some seconds later. Throws as `put`. */
  delete(key: string): Promise<void>;
  /** The newest record of each live key (of one that is being written meanwhile: the old or the new one). Throws
   * DeadlineError, UnreachableError. */
  load(): Promise<Map<string, Uint8Array>>;
  /** Resolves when these records were still this opener's at the time of the call. Throws as `put`. */
  verify(): Promise<void>;
  /** The names of the servers that keep a copy, also of those that are away, as of the opening; none of a server that is
   * alone. */
  readonly servers: readonly string[];
  /** Resolves with what every later write is refused with: another writer has opened the stream, the server was away for
   * too long, or `close`. */
  readonly poisoned: Promise<SandmeshError>;
  /** PoolUnavailableError (reason `records`) while the server's disk takes no writes; they wait meanwhile. */
  readonly trouble: SandmeshError | undefined;
  /** Called when `trouble` begins. */
  onTrouble(handle: (error: SandmeshError) => void): void;
  /** Waits for the writes under way and lets go; the stream stays. */
  close(): Promise<void>;
}

export const MAX_RECORD_BYTES = 512 * 1024;
const TOMBSTONE_TTL = "10s";
const KEY = /^[a-z0-9][a-z0-9-]*(\.[a-z0-9][a-z0-9-]*)*$/;
/** No key looks like it. */
const FENCE = "_fence";
const DELETED = "Sandmesh-Deleted";
const NO_BYTES = new Uint8Array(0);
const DEFAULT_TIMEOUT_MS = 30_000;
const CATCH_UP_MS = 100;
/** JetStream's error codes: a stream of that name with another configuration; too few servers there for its copies, as
 * while a cluster starts. */
const STREAM_EXISTS = 10058;
const NO_PEERS = 10005;

const Named = v.object({ name: v.string() });
const Answer = v.looseObject({
  seq: v.optional(v.number()),
  cluster: v.optional(v.object({ leader: v.optional(v.string()), replicas: v.nullish(v.array(Named)) })),
  error: ApiFailure,
});

/** Opens the stream as its one writer: from then on every earlier writer's writes are refused. Throws ConflictError
 * (others keep opening it), UnreachableError or DeadlineError (no JetStream), InvalidRequestError. */
export async function openRecords(link: Link, options: RecordsOptions): Promise<Records> {
  const { stream, subjectPrefix } = options;
  if (!/^rec\.v1\.[a-z0-9-]+$/.test(subjectPrefix)) {
    throw new InvalidRequestError("subjectPrefix must be rec.v1.<name>", { field: "subjectPrefix" });
  }
  if (!/^[A-Za-z0-9_-]{1,64}$/.test(stream)) {
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
  readonly #options: RecordsOptions;
  readonly #timeoutMs: number;
  readonly #jetstream: JetStream;
  readonly #writer: Writer;
  readonly #fenceSubject: string;
  readonly #beginnings: Subscription;
  servers: readonly string[] = [];
  #open = false;
  #closed = false;

  constructor(link: Link, options: RecordsOptions) {
    this.#options = options;
    this.#timeoutMs = options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
    this.#jetstream = new JetStream(link, this.#timeoutMs);
    this.#writer = new Writer(this.#jetstream, options.stream, this.#timeoutMs);
    this.#fenceSubject = `${options.subjectPrefix}.${FENCE}`;
    this.#beginnings = link.subscribe(this.#fenceSubject, (message) => {
      if (this.#open && message.header(WRITER) !== this.#writer.name) this.#writer.fenced();
    });
    // What another one said while the connection was away was not heard.
    link.onStatus((connected) => {
      if (connected && this.#open && !this.#closed) this.verify().catch(() => {});
    });
  }

  get poisoned(): Promise<SandmeshError> {
    return this.#writer.poisoned;
  }

  get trouble(): SandmeshError | undefined {
    return this.#writer.trouble;
  }

  onTrouble(handle: (error: SandmeshError) => void): void {
    this.#writer.onTrouble(handle);
  }

  async open(): Promise<void> {
    const deadline = performance.now() + this.#timeoutMs;
    await this.#jetstream.retry(deadline, () => this.#makeStream());
    await this.#jetstream.retry(deadline, () => this.#fence(), true);
    this.#open = true;
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
      // Writes carry no message ids, so that none need to be kept to tell doubled ones.
      duplicate_window: 1_000_000_000,
    };
    let answer = check(Answer, await this.#jetstream.call(`STREAM.CREATE.${stream}`, config));
    if (answer.error?.err_code === STREAM_EXISTS) {
      answer = check(Answer, await this.#jetstream.call(`STREAM.UPDATE.${stream}`, config));
    }
    const { error, cluster } = answer;
    if (error !== undefined && (isPassing(error) || error.err_code === NO_PEERS)) {
      throw new UnreachableError(`JetStream has no place for the stream ${stream}: ${error.description}`);
    }
    if (error !== undefined) {
      throw new ConflictError(`JetStream refuses the stream ${stream}: ${error.description}`);
    }
    const others = cluster?.replicas?.map(({ name }) => name) ?? [];
    this.servers = cluster?.leader === undefined ? others : [cluster.leader, ...others];
  }

  async #fence(): Promise<void> {
    const subject = this.#fenceSubject;
    // The first names no sequence, so that it lands whatever others do; the run begins after it.
    const name = { [WRITER]: this.#writer.name };
    const [first] = await this.#jetstream.collect(subject, NO_BYTES, () => true, name);
    const { seq, error } = check(Answer, decode(first?.data ?? NO_BYTES));
    if (seq === undefined) throw new UnreachableError(`JetStream refuses a record: ${error?.description}`);
    this.#writer.startAfter(seq);
    const run = Array.from({ length: MAX_IN_FLIGHT }, () => this.#writer.write(subject, NO_BYTES));
    const failed = (await Promise.allSettled(run)).find((each) => each.status === "rejected");
    if (failed !== undefined) throw failed.reason;
  }

  async put(key: string, data: Uint8Array, { ttlMs }: PutOptions = {}): Promise<void> {
    if (data.length > MAX_RECORD_BYTES) {
      throw new InvalidRequestError(`a record of ${data.length} bytes; at most ${MAX_RECORD_BYTES}`, {
        field: "data",
      });
    }
    return this.#write(
      key,
      data,
      ttlMs === undefined ? undefined : { "Nats-TTL": `${Math.ceil(ttlMs / 1000)}s` },
    );
  }

  async delete(key: string): Promise<void> {
    return this.#write(key, NO_BYTES, { [DELETED]: "1", "Nats-TTL": TOMBSTONE_TTL });
  }

  async verify(): Promise<void> {
    if (this.#closed) throw new ConnectionError("these records are closed");
    await this.#writer.write(this.#fenceSubject, NO_BYTES);
  }

  #write(key: string, data: Uint8Array, headers?: Record<string, string>): Promise<void> {
    if (!KEY.test(key)) {
      throw new InvalidRequestError(`key ${JSON.stringify(key)} is not valid`, { field: "key" });
    }
    if (this.#closed) throw new ConnectionError("these records are closed");
    return this.#writer.write(`${this.#options.subjectPrefix}.${key}`, data, headers);
  }

  async load(): Promise<Map<string, Uint8Array>> {
    const records = new Map<string, Uint8Array>();
    const deadline = performance.now() + this.#timeoutMs;
    let from = 1;
    // A copy of the stream that lags must not pass for the whole: read on until the last write is seen.
    while (from <= this.#writer.last) {
      const batch = await this.#batch(from);
      for (const message of batch) {
        from = Math.max(from, Number(message.header("Nats-Sequence")) + 1);
        this.#take(records, message);
      }
      if (batch.length > 0) continue;
      if (await this.#isEmptyFrom(from)) break;
      if (performance.now() > deadline) throw new UnreachableError("the stream's copy does not catch up");
      await new Promise((go) => setTimeout(go, CATCH_UP_MS));
    }
    return records;
  }

  /** Some of what is stored from `from` on, in order. With one message a subject, that is the newest of each key. */
  async #batch(from: number): Promise<Message[]> {
    const { stream, subjectPrefix } = this.#options;
    const body = { seq: from, batch: 500, max_bytes: 4 * 1024 * 1024, next_by_subj: `${subjectPrefix}.>` };
    const messages = await this.#jetstream.collect(
      `$JS.API.DIRECT.GET.${stream}`,
      Buffer.from(JSON.stringify(body)),
      (message) => message.header("Status") !== undefined,
    );
    const status = messages.pop()?.header("Status");
    // 204: the batch is whole. 404: there is nothing.
    if (status === "204" || status === "404") return messages;
    throw new UnreachableError(`JetStream does not give the records: status ${status}`);
  }

  /** Whether the stream's leader has nothing from there on (the last may have been a tombstone, whose time was up). */
  async #isEmptyFrom(from: number): Promise<boolean> {
    const { stream, subjectPrefix } = this.#options;
    const body = { seq: from, next_by_subj: `${subjectPrefix}.>` };
    return check(Answer, await this.#jetstream.call(`STREAM.MSG.GET.${stream}`, body)).error?.code === 404;
  }

  #take(records: Map<string, Uint8Array>, message: Message): void {
    const subject = message.header("Nats-Subject") ?? "";
    const key = subject.slice(this.#options.subjectPrefix.length + 1);
    if (message.header(DELETED) !== undefined) records.delete(key);
    else if (key !== FENCE) records.set(key, message.data);
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#beginnings.unsubscribe();
    await this.#writer.close();
    this.#jetstream.close();
  }
}
