// Ordered, pipelined writes to a JetStream stream: each names the sequence that it follows. After a lost connection or
// acknowledgement the stream is asked how far it has come, and only what it lacks is sent again.
import { randomBytes } from "node:crypto";
import * as v from "valibot";
import {
  BusyError,
  ConflictError,
  ConnectionError,
  check,
  decode,
  PoolUnavailableError,
  type SandmeshError,
  toSandmeshError,
  UnreachableError,
} from "../contract/index.ts";
import { ApiFailure, isPassing, type JetStream } from "./jetstream.ts";
import type { Message } from "./link.ts";

/** Writes on their way at most, by whatever version of sandmesh: the fence counts on it. Never raise it. */
export const MAX_IN_FLIGHT = 256;
/** Writes that may wait in this process. */
export const MAX_WAITING = 64 * 1024;
/** When nothing is acknowledged for this long, the stream is asked. A disk that was just found full is answered by
 * nothing at all. */
const STALL_MS = 2_000;
/** A stream that answers, and has not stored for this long what it was sent again and again, cannot store: JetStream
 * answers nothing to a write that its disk refuses. Less than the time that clients wait for an answer. */
const BROKEN_MS = 3_500;
const BROKEN_TRIES = 3;
/** The header that names the writer of a message. */
export const WRITER = "Sandmesh-Writer";
/** Between a refusal and the question why: others of what was on its way are refused meanwhile. */
const REFUSED_MS = 20;
/** And where JetStream's disk takes nothing: it is asked seldom, for as long as that lasts. */
const FULL_MS = 500;
/** JetStream's error codes for that: no storage left for the account, or the server; a message was not stored. */
const NO_STORAGE: ReadonlySet<number | undefined> = new Set([10023, 10047, 10077]);
/** JetStream's error code for a write that names another sequence than the last. */
const WRONG_LAST_SEQUENCE = 10071;

interface Write {
  subject: string;
  data: Uint8Array;
  headers: Record<string, string> | undefined;
  /** The sequence it follows; set when it is sent. */
  after: number;
  resolve(): void;
  reject(error: SandmeshError): void;
}

const PublishAnswer = v.looseObject({ seq: v.optional(v.number()), error: ApiFailure });
const StreamInfo = v.looseObject({
  state: v.optional(v.looseObject({ last_seq: v.number() })),
  error: ApiFailure,
});
const StoredMessage = v.looseObject({
  message: v.optional(v.looseObject({ hdrs: v.optional(v.string()) })),
});

export class Writer {
  readonly #jetstream: JetStream;
  readonly #stream: string;
  readonly #timeoutMs: number;
  readonly #acks: { reply: string; forget(): void };
  /** Told from other writers by this, in each message that it writes. */
  readonly name = randomBytes(8).toString("hex");
  /** Resolves when this writer may write no more. */
  readonly poisoned: Promise<SandmeshError>;
  #tellPoisoned!: (error: SandmeshError) => void;
  readonly #inFlight = new Map<number, Write>();
  #waiting: Write[] = [];
  /** Those of #waiting before it have been sent. */
  #head = 0;
  #last = 0;
  #poison: SandmeshError | undefined;
  #recovering = false;
  /** How often the oldest on its way was sent again. */
  #tries = 0;
  #trouble: SandmeshError | undefined;
  readonly #troubled: ((error: SandmeshError) => void)[] = [];
  /** The connection is lost. What is sent now would be held and arrive first, before what was lost with it is sent
   * again, and be refused as another writer's. */
  #away = false;
  #progressAt = performance.now();
  #idle: (() => void)[] = [];
  readonly #watch: ReturnType<typeof setInterval>;

  /** `timeoutMs`: how long the stream may be away before the writer is poisoned. */
  constructor(jetstream: JetStream, stream: string, timeoutMs: number) {
    this.#jetstream = jetstream;
    this.#stream = stream;
    this.#timeoutMs = timeoutMs;
    this.poisoned = new Promise((resolve) => {
      this.#tellPoisoned = resolve;
    });
    this.#acks = jetstream.inbox.expect((message) => this.#acked(message));
    jetstream.link.onStatus((connected) => {
      this.#away = !connected;
      if (!connected) return;
      if (this.#inFlight.size > 0) void this.#recover();
      else this.#pump();
    });
    const stallMs = Math.min(STALL_MS, timeoutMs);
    this.#watch = setInterval(() => {
      const stalledMs = performance.now() - this.#progressAt;
      if (stalledMs > stallMs) void this.#recover();
      // What waits while nothing is on its way has no answer to be asked for.
      const stuck = this.#away && this.#inFlight.size === 0 && this.#waiting.length > this.#head;
      if (stuck && stalledMs > timeoutMs)
        this.#fail(new UnreachableError(`${stream} is away for ${timeoutMs} ms`));
    }, stallMs / 5);
    this.#watch.unref();
  }

  /** The sequence of the last write that was sent. */
  get last(): number {
    return this.#last;
  }

  /** Why nothing can be stored now, though the server is there: its disk. Writes wait and are tried again, so that it
   * passes by itself once there is room. */
  get trouble(): SandmeshError | undefined {
    return this.#trouble;
  }

  /** Called when `trouble` begins. */
  onTrouble(handle: (error: SandmeshError) => void): void {
    this.#troubled.push(handle);
  }

  /** Begins anew: the next write follows `last`. */
  startAfter(last: number): void {
    this.#last = last;
    this.#poison = undefined;
  }

  /** Resolves when it is stored. Throws ConflictError (reason `fenced`), UnreachableError, ConnectionError: then the
   * writer is poisoned, and every later write throws the same; or BusyError, which changes nothing. */
  write(subject: string, data: Uint8Array, headers?: Record<string, string>): Promise<void> {
    if (this.#poison !== undefined) return Promise.reject(this.#poison);
    if (this.#waiting.length - this.#head >= MAX_WAITING) {
      return Promise.reject(new BusyError(`${MAX_WAITING} records wait to be written`));
    }
    return new Promise((resolve, reject) => {
      if (this.#waiting.length === this.#head && this.#inFlight.size === 0)
        this.#progressAt = performance.now();
      this.#waiting.push({ subject, data, headers, after: 0, resolve, reject });
      this.#pump();
    });
  }

  #pump(): void {
    while (!this.#recovering && !this.#away && this.#inFlight.size < MAX_IN_FLIGHT) {
      const write = this.#waiting[this.#head];
      if (write === undefined) break;
      this.#head++;
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

  #send({ subject, data, headers, after }: Write): void {
    const all = { "Nats-Expected-Last-Sequence": String(after), [WRITER]: this.name, ...headers };
    try {
      this.#jetstream.link.publish(subject, data, { reply: `${this.#acks.reply}.${after}`, headers: all });
    } catch (error) {
      this.#fail(toSandmeshError(error));
    }
  }

  #acked(message: Message): void {
    const { subject, data } = message;
    const write = this.#inFlight.get(Number(subject.slice(subject.lastIndexOf(".") + 1)));
    if (write === undefined) return;
    if (message.header("Status") === "503") {
      void this.#recover();
      return;
    }
    try {
      const { seq, error } = check(PublishAnswer, decode(data));
      if (error !== undefined && NO_STORAGE.has(error.err_code)) this.#full(error.description);
      // Another writer, or a gap: where a cluster's leader went, some of what was on its way is lost, and what came
      // after it does not follow. The stream knows which.
      else if (error !== undefined && (isPassing(error) || error.err_code === WRONG_LAST_SEQUENCE))
        void this.#recover(REFUSED_MS);
      else if (error !== undefined)
        this.#fail(new UnreachableError(`JetStream refuses a record: ${error.description}`));
      else if (seq !== write.after + 1) this.#fail(this.#stale(`stored as ${seq}, not ${write.after + 1}`));
      else this.#done(write);
    } catch (error) {
      this.#fail(toSandmeshError(error));
    }
  }

  #full(description: string | undefined): void {
    if (this.#trouble === undefined) {
      const said = `the mesh's records cannot be written: no space on NATS's disk, or it cannot be written (${description})`;
      this.#trouble = new PoolUnavailableError(said, { reason: "records" });
      for (const tell of this.#troubled) tell(this.#trouble);
    }
    void this.#recover();
  }

  #done(write: Write): void {
    this.#inFlight.delete(write.after);
    this.#trouble = undefined;
    this.#tries = 0;
    this.#progressAt = performance.now();
    write.resolve();
    this.#pump();
    if (this.#inFlight.size === 0) for (const idle of this.#idle.splice(0)) idle();
  }

  /** Another writer was seen at work. */
  fenced(): void {
    this.#fail(this.#stale("it has said so"));
  }

  #stale(why: string): SandmeshError {
    return new ConflictError(`another writer has opened the stream ${this.#stream} (${why})`, {
      reason: "fenced",
    });
  }

  /** Poisons the writer: what is on its way, what waits and what comes fails with this. */
  #fail(error: SandmeshError): void {
    if (this.#poison !== undefined) return;
    this.#poison = error;
    this.#tellPoisoned(error);
    const all = [...this.#inFlight.values(), ...this.#waiting.slice(this.#head)];
    this.#inFlight.clear();
    this.#waiting = [];
    this.#head = 0;
    for (const write of all) write.reject(error);
    for (const idle of this.#idle.splice(0)) idle();
  }

  async #recover(afterMs = 0): Promise<void> {
    if (this.#recovering || this.#inFlight.size === 0 || this.#poison !== undefined) return;
    this.#recovering = true;
    try {
      const pauseMs = this.#trouble === undefined ? afterMs : FULL_MS;
      if (pauseMs > 0) await new Promise((go) => setTimeout(go, pauseMs));
      await this.#jetstream.retry(this.#progressAt + this.#timeoutMs, () => this.#compare());
    } catch (error) {
      this.#fail(toSandmeshError(error));
    } finally {
      this.#recovering = false;
      this.#pump();
    }
  }

  /** Takes what the stream has for acknowledged and sends the rest again, as it was: a write that names its place
   * cannot be stored twice. (Where the first sending was only late, its own acknowledgement comes before the second's
   * refusal, which then finds nothing waiting for it.) */
  async #compare(): Promise<void> {
    const answer = await this.#jetstream.call(`STREAM.INFO.${this.#stream}`, {});
    const { state, error } = check(StreamInfo, answer);
    if (state === undefined) throw new UnreachableError(`no stream ${this.#stream}: ${error?.description}`);
    const [oldest] = this.#inFlight.keys();
    if (oldest === undefined) return;
    const last = state.last_seq;
    // What is stored is not lost again: in a cluster a leader that was just chosen has not yet come so far.
    if (last < oldest)
      throw new UnreachableError(
        `${this.#stream} is at ${last}, and ${oldest} were stored: its leader is behind`,
      );
    const ours = last === oldest || (last > oldest && last <= this.#last && (await this.#wrote(last)));
    if (!ours) throw this.#stale(`it is at ${last}, this writer was at ${oldest}`);
    this.#tries = last === oldest ? this.#tries + 1 : 0;
    if (this.#tries >= BROKEN_TRIES && performance.now() - this.#progressAt > BROKEN_MS)
      this.#full(`nothing is stored after ${last}`);
    const writes = [...this.#inFlight.values()];
    for (const write of writes) {
      if (write.after < last) this.#done(write);
      else this.#send(write);
    }
  }

  async #wrote(sequence: number): Promise<boolean> {
    const answer = await this.#jetstream.call(`STREAM.MSG.GET.${this.#stream}`, { seq: sequence });
    const { message } = check(StoredMessage, answer);
    return Buffer.from(message?.hdrs ?? "", "base64")
      .toString("latin1")
      .includes(`${WRITER}: ${this.name}`);
  }

  /** Waits for what is on its way, and refuses what comes. */
  async close(): Promise<void> {
    if (this.#inFlight.size > 0) await new Promise<void>((idle) => this.#idle.push(idle));
    this.#fail(new ConnectionError("these records are closed"));
    clearInterval(this.#watch);
    this.#acks.forget();
  }
}
