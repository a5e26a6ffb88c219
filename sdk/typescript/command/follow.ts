// Follows one command by its id from its first byte to its outcome, over lost answers, reconnects and restarts of
// the broker. The command itself runs at most once: every question carries the same id.
import {
  BusyError,
  type ChunkFrame,
  type EndFrame,
  encode,
  FIRST_CREDIT_BYTES,
  type Frame,
  OutputGoneError,
  SandmeshError,
  type Started,
  sandboxSubject,
  UnreachableError,
} from "../../../broker/contract/index.ts";
import type { Message } from "../../../broker/link/link.ts";
import type { Box } from "../wire/box.ts";
import { ABSENT_MS } from "../wire/caller.ts";
import { giveCredit, sayGone } from "../wire/credit.ts";
import { mayBeLost, saying, startedNothing } from "../wire/lost.ts";
import { pause } from "../wire/pause.ts";
import { aboutCommand, LINK_TIMEOUT_MS, type Patience, Watch } from "../wire/watch.ts";
import { Progress, parseFrame } from "./frames.ts";
import { CREDIT_BYTES, creditOf, type WireExec } from "./request.ts";

export interface FollowOptions {
  id: string;
  /** Left out: the command runs already, and is only attached to. */
  exec?: WireExec;
  /** Where to read on from. */
  from?: { stdout?: number; stderr?: number };
  /** `tail`: bytes may be missing before what is sent. */
  keep?: "head" | "tail" | "fail" | undefined;
  patience?: Patience | undefined;
  signal?: AbortSignal | undefined;
}

/** The answer that is being read. */
interface Answering {
  answers: AsyncIterator<Message>;
  /** Of the chunk that was given last. */
  reading: ChunkFrame["stream"] | undefined;
  close(): void;
}

/** Answers with missing bytes, one after another, after which they count as lost for good. */
const MAX_GAPS = 5;

export class Follower {
  readonly #box: Box;
  readonly #options: FollowOptions;
  readonly #watch: Watch;
  readonly #progress: Progress;
  /** Offsets that the sandbox knows of. */
  readonly #acknowledged = { stdout: 0, stderr: 0 };
  #started: Started;
  /** As it was before the question that is open now. */
  #startedBefore: Started;
  #heard = false;
  #gaps = 0;
  #absentSince: number | undefined;
  #waitMs = 50;
  #token = "";
  /** The last question is answered in frames, of which the last has not come. */
  #isRead = false;
  /** The token of the first question. */
  #reader: string | undefined;
  #creditBytes = CREDIT_BYTES;
  #open: Answering | undefined;
  #tellStop: (error: SandmeshError) => void = () => undefined;

  /** Throws where the sandbox is lost, the server gone, or the signal has aborted already. */
  constructor(box: Box, options: FollowOptions) {
    this.#box = box;
    this.#options = options;
    this.#started = options.exec === undefined ? "yes" : "no";
    this.#startedBefore = this.#started;
    this.#progress = new Progress(options.keep !== "tail", options.from);
    const { signal, patience } = options;
    this.#watch = new Watch(box, {
      signal,
      patience,
      started: () => this.#started,
      onStop: (error) => this.#tellStop(error),
    });
  }

  /** Calls `tell` when the following is stopped: by the signal, a time limit, the sandbox's loss, or `stop`. */
  onStop(tell: (error: SandmeshError) => void): void {
    this.#tellStop = tell;
  }

  /** Ends the following; `frames` throws `error`. */
  stop(error: SandmeshError): void {
    this.#watch.stop(aboutCommand(error, this.#box.id, this.#started));
  }

  /** Lets go of timers and listeners, and of the answer in the sandbox; `frames` does so by itself where it is read. */
  end(): void {
    this.#watch.end();
    if (!this.#isRead) return;
    this.#isRead = false;
    sayGone(this.#box, this.#token);
  }

  /** Chunks in order per stream, each byte once, then one end frame; of a detached exec the started frame alone. */
  async *frames(): AsyncGenerator<Frame, void, void> {
    try {
      for (;;) {
        const frame = await this.next();
        yield frame;
        if (frame.type !== "chunk") return;
      }
    } finally {
      this.end();
    }
  }

  /** One of these; the last is the one that is no chunk. One at a time; `end` is to be called where the last was not
   * asked for. */
  async next(): Promise<Frame> {
    try {
      for (;;) {
        this.#watch.throwIfStopped();
        this.#open ??= this.#ask();
        const frame = await this.#read(this.#open);
        if (frame !== undefined) {
          if (frame.type !== "chunk") this.end();
          return frame;
        }
        this.#open.close();
        this.#open = undefined;
        await this.#beforeNext();
      }
    } catch (error) {
      this.end();
      throw error instanceof SandmeshError ? aboutCommand(error, this.#box.id, this.#started) : error;
    }
  }

  /** The next frame of an answer; undefined where the command is to be asked after anew. */
  async #read(stream: Answering): Promise<Frame | undefined> {
    try {
      for (;;) {
        const { reading } = stream;
        // The reader has taken the chunk before.
        if (reading !== undefined) this.#credit(reading);
        stream.reading = undefined;
        const { value: message, done } = await stream.answers.next();
        if (done === true) return undefined;
        // What is no chunk is the last, an error among it.
        this.#isRead = false;
        const frame = parseFrame(message.data);
        this.#isRead = frame.type === "chunk";
        this.#hear();
        if (frame.type !== "chunk")
          return frame.type === "started" || this.#isWhole(frame) ? frame : undefined;
        const data = this.#progress.take(frame);
        if (data === "gap") return undefined;
        stream.reading = frame.stream;
        // Sent again, since the sandbox does not know that it came: our word of it was lost.
        if (data.length === 0 && frame.eof !== true) this.#credit(frame.stream, true);
        else return { ...frame, data, offset: frame.offset + frame.data.length - data.length };
      }
    } catch (error) {
      this.#judge(error);
      return undefined;
    }
  }

  #ask(): Answering {
    const { exec, id } = this.#options;
    const { link } = this.#box.caller;
    // Nothing heard: the request itself may be lost, so it is sent again; its id keeps it from running twice.
    const verb = exec !== undefined && !this.#heard ? "exec" : "attach";
    const { stdout, stderr } = this.#progress.next;
    this.#creditBytes = creditOf(this.#box.pulse.waiting);
    const credit_bytes = FIRST_CREDIT_BYTES;
    const reading = { credit_bytes, ...(this.#reader === undefined ? {} : { reader: this.#reader }) };
    const what =
      verb === "attach"
        ? { id, from_stdout: stdout, from_stderr: stderr, ...reading }
        : // A detached exec is not read.
          { ...exec, ...(exec?.credit_bytes === undefined ? {} : reading) };
    const body = encode({ version: 1, ...this.#box.target.fence, ...what });
    this.#acknowledged.stdout = stdout;
    this.#acknowledged.stderr = stderr;
    const subject = sandboxSubject(link.tenant, this.#box.id, verb);
    const stream = link.stream(this.#box.id, subject, body, { timeoutMs: LINK_TIMEOUT_MS });
    this.#token = stream.token;
    this.#isRead = "credit_bytes" in what && what.credit_bytes !== undefined;
    this.#reader ??= stream.token;
    this.#startedBefore = this.#started;
    if (this.#started === "no") this.#started = "unknown";
    this.#watch.reading(stream);
    return { answers: stream[Symbol.asyncIterator](), reading: undefined, close: () => stream.close() };
  }

  #hear(): void {
    this.#heard = true;
    this.#started = "yes";
    this.#absentSince = undefined;
    this.#waitMs = 50;
    this.#watch.heard();
  }

  /** Lets the daemon send on, `#creditBytes` ahead of the reader; half of the first credit at a time, or `now`. */
  #credit(name: ChunkFrame["stream"], now = false): void {
    if (name === "data") return;
    const received = this.#progress.next[name];
    if (!now && received - this.#acknowledged[name] < FIRST_CREDIT_BYTES / 2) return;
    this.#acknowledged[name] = received;
    giveCredit(this.#box, {
      token: this.#token,
      stream: name,
      received,
      until: received + this.#creditBytes,
    });
  }

  #isWhole(frame: EndFrame): boolean {
    if (this.#progress.complete(frame)) return true;
    if (++this.#gaps < MAX_GAPS) return false;
    throw new OutputGoneError("a part of the command's output was lost on the way", {
      sandbox: this.#box.id,
      started: "yes",
    });
  }

  /** Returns where the question may be asked again; throws otherwise. */
  #judge(error: unknown): void {
    this.#watch.throwIfStopped();
    const refused = startedNothing(error);
    // This try did nothing: nobody listened, or who did refused it. One before it may have.
    if ((refused || error instanceof UnreachableError) && !this.#heard) this.#started = this.#startedBefore;
    this.#box.note(error);
    if (error instanceof UnreachableError) {
      const now = Date.now();
      this.#absentSince ??= now;
      if (now - this.#absentSince <= ABSENT_MS) {
        void this.#box.inquire();
        return;
      }
    } else if (mayBeLost(error)) {
      return;
    } else if (error instanceof BusyError && error.reason === "reader_stalled") {
      // We read too slowly for the daemon's patience; the command goes on, and so may we.
      return;
    }
    // The sandbox speaks of this question, and we know of those before.
    if (error instanceof SandmeshError && (refused || this.#heard))
      throw saying(error, this.#started, this.#box.id);
    throw error;
  }

  async #beforeNext(): Promise<void> {
    await pause(this.#waitMs * (0.5 + Math.random()), this.#options.signal);
    this.#waitMs = Math.min(this.#waitMs * 2, 1_000);
    this.#watch.throwIfStopped();
  }
}

/** Ends a command in the sandbox, without being waited for: asked again until it is answered, for a while. */
export function cancelBehind(box: Box, id: string): void {
  if (box.lifeline.error !== undefined) return;
  box.call("cancel", { id }).catch(() => undefined);
}
