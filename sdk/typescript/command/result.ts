// What a command did and wrote, as users see it.
import type { EndFrame, Outcome } from "../../../broker/contract/index.ts";
import { CommandFailedError } from "../errors.ts";

const NOTHING = new Uint8Array(0);
/** Bad bytes become U+FFFD; a byte order mark is kept, since it was written. */
const utf8 = new TextDecoder("utf-8", { ignoreBOM: true });

/** One output stream of a command: always the exact bytes, and text made from them when asked for. */
export class Output {
  #parts: Uint8Array[];
  #text: string | undefined;
  /** Bytes that the command wrote. */
  readonly totalBytes: number;
  /** Of them left out for the output limit. */
  readonly droppedBytes: number;
  /** Where the left-out ones would stand; undefined where none was. */
  readonly droppedFrom: number | undefined;

  constructor(parts: Uint8Array[], total: EndFrame["totals"]["stdout"]) {
    this.#parts = parts;
    this.totalBytes = total.total_bytes;
    this.droppedBytes = total.dropped_bytes;
    this.droppedFrom = total.dropped_from;
  }

  get bytes(): Uint8Array {
    if (this.#parts.length > 1) this.#parts = [Buffer.concat(this.#parts)];
    return this.#parts[0] ?? NOTHING;
  }

  /** As UTF-8; bytes that are none become U+FFFD. */
  get text(): string {
    this.#text ??= utf8.decode(this.bytes);
    return this.#text;
  }

  /** Whether bytes were left out for the output limit. */
  get truncated(): boolean {
    return this.droppedBytes > 0;
  }

  toString(): string {
    return this.text;
  }
}

/** How a command ended, without its output. */
export class CommandEnd {
  readonly id: string;
  readonly sandbox: string;
  readonly outcome: Outcome;
  /** Start to end inside the sandbox, ms. */
  readonly durationMs: number;
  /** Of the command's first process, as the sandbox sees it; undefined where none started. */
  readonly pid: number | undefined;
  /** Processes of it that live on, by design. */
  readonly background: number;
  readonly cpuMs: number | undefined;
  readonly maxRssBytes: number | undefined;
  readonly totals: EndFrame["totals"];

  constructor(frame: EndFrame, sandbox: string) {
    this.id = frame.id;
    this.sandbox = sandbox;
    this.outcome = frame.outcome;
    this.durationMs = frame.duration_ms;
    this.pid = frame.pid;
    this.background = frame.background ?? 0;
    this.cpuMs = frame.cpu_ms;
    this.maxRssBytes = frame.max_rss_bytes;
    this.totals = frame.totals;
  }

  /** 0 to 255 where it exited by itself, else undefined: look at `outcome`. */
  get exitCode(): number | undefined {
    return this.outcome.type === "exited" ? this.outcome.code : undefined;
  }

  /** Whether it exited with 0. */
  get ok(): boolean {
    return this.exitCode === 0;
  }
}

/** What a command did, and its output. */
export class ExecResult extends CommandEnd {
  readonly stdout: Output;
  /** Empty with `merge` and on a terminal: all is in `stdout`, in order. */
  readonly stderr: Output;

  constructor(frame: EndFrame, sandbox: string, stdout: Uint8Array[], stderr: Uint8Array[]) {
    super(frame, sandbox);
    this.stdout = new Output(stdout, frame.totals.stdout);
    this.stderr = new Output(stderr, frame.totals.stderr);
  }

  /** Whether any output was left out for the output limit. */
  get truncated(): boolean {
    return this.stdout.truncated || this.stderr.truncated;
  }

  /** This, where the command exited with 0; throws CommandFailedError otherwise. */
  orThrow(): this {
    if (!this.ok) throw new CommandFailedError(this, this.sandbox);
    return this;
  }
}
