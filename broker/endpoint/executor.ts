// What executes: the endpoint's other side. agent/ passes real processes and files, pool/provider/simulated virtual
// ones. The endpoint owns the wire (decoding, fences, at-most-once, credit, retained output); an executor owns
// effects and knows nothing of NATS.
import type {
  ExecRequest,
  FileStat,
  GlobAnswer,
  HashAnswer,
  InfoAnswer,
  ListDirAnswer,
  Outcome,
  OutputStream,
  SandmeshError,
  SearchAnswer,
  SessionView,
  WatchAnswer,
} from "../contract/index.ts";

/** Called with output as it comes, in order per stream; the bytes belong to the receiver, which may give back their memory
 * (`giveBlock`). */
export interface CommandSink {
  output(stream: OutputStream, data: Uint8Array): void;
  /** Nothing more comes of that stream, while the command goes on. Only connections tell it. */
  outputEnd?(stream: OutputStream): void;
  /** When the leader started; once more where another process has become it before anything of the command ran. Not called
   * where the command could not be started. */
  started(pid: number): void;
  /** Once, last. After it nothing more is called. */
  ended(result: CommandResult): void;
  /** In place of `ended`, where a fault of the executor's own keeps it from knowing how the command ended. */
  fail(error: SandmeshError): void;
}

export interface CommandResult {
  outcome: Outcome;
  durationMs: number;
  background?: number;
  cpuMs?: number;
  maxRssBytes?: number;
}

/** A command that was begun. None of these throws once it has ended; they do nothing then. */
export interface RunningCommand {
  /** Stops reading output (true) or goes on (false): back-pressure, to the command's own pipe. */
  pause(paused: boolean): void;
  /** Resolves when the bytes were taken (written or buffered within a bound). */
  stdin(data: Uint8Array): Promise<void>;
  closeStdin(): void;
  /** To the process group, by the signal's number; false where it has ended. Throws InvalidRequestError where
   * it has no process. */
  signal(signal: number): boolean | Promise<boolean>;
  /** Ends the whole tree; `ended` then tells `canceled` (or `output_limit`, when the endpoint says so by `as`). */
  cancel(as?: Outcome): void;
  resize(rows: number, cols: number): void;
  /** Closes its terminal: what runs on it gets SIGHUP. Left out where there is none. */
  hangUp?(): void;
  /** Pids of it that live on after its end. */
  background(): Promise<number[]>;
}

/** What a pack left out: how many, and the first of their names below the folder. */
export interface LeftOut {
  readonly count: number;
  readonly paths: readonly string[];
}

export interface ByteSource {
  /** Size when opened, where known. */
  readonly size?: number;
  /** Known when it is read to its end. */
  readonly leftOut?: LeftOut;
  /** The next part, at most `max` bytes, as the receiver's own; undefined at the end. */
  read(max: number): Promise<Uint8Array | undefined>;
  close(): Promise<void>;
}

export interface ByteSink {
  /** A file's sink is through with the bytes when this has resolved. */
  write(data: Uint8Array): Promise<void>;
  /** Makes it visible; throws without a trace left where that fails. */
  finish(): Promise<void>;
  abort(): Promise<void>;
}

export interface WriteOptions {
  path: string;
  append: boolean;
  parents: boolean;
  fsync: boolean;
  mode?: number;
  uid?: number;
  gid?: number;
  mtimeMs?: number;
}

/** Throws FileError with the errno name as reason. */
export interface Files {
  read(request: ReadRequestParsed): Promise<ByteSource>;
  write(options: WriteOptions): Promise<ByteSink>;
  stat(path: string, follow: boolean): Promise<FileStat>;
  list(path: string, after: string | undefined, limit: number, signal: AbortSignal): Promise<ListDirAnswer>;
  /** A signal that aborts ends it by its reason, with some of a folder removed. */
  remove(path: string, recursive: boolean, missingOk: boolean, signal: AbortSignal): Promise<void>;
  mkdir(path: string, mode: number | undefined, parents: boolean): Promise<void>;
  rename(from: string, to: string): Promise<void>;
  pack(path: string): Promise<ByteSource>;
  unpack(path: string, owner: boolean): Promise<ByteSink>;
  /** Those whose paths are relative to the folder `root`, and do not leave it: where one would, by "..", an absolute path or a
   * symlink, whoever sets that meanwhile, it throws FileError with the reason EXDEV. */
  beneath(root: string): Files;
}

export interface Attributes {
  path: string;
  mode?: number;
  uid?: number;
  gid?: number;
  mtimeMs?: number;
  follow: boolean;
}

/** What is found out about files where they lie; a signal that aborts ends it by its reason. Throws FileError with the errno
 * name as reason, and NotFoundError for a watch's cursor that is not known (any more). */
export interface Trees {
  hash(path: string, signal: AbortSignal): Promise<HashAnswer>;
  setAttributes(attributes: Attributes): Promise<void>;
  glob(request: {
    path: string;
    pattern: string;
    hidden: boolean;
    after?: string;
    cursor?: string;
    limit: number;
    signal: AbortSignal;
  }): Promise<GlobAnswer>;
  search(request: {
    path: string;
    text: string;
    ignoreCase: boolean;
    files?: string;
    hidden: boolean;
    limit: number;
    signal: AbortSignal;
  }): Promise<SearchAnswer>;
  /** Resolves when all of it is watched; under the same name it begins once. */
  watch(request: {
    path: string;
    recursive: boolean;
    transfer?: string;
    signal: AbortSignal;
  }): Promise<WatchAnswer>;
  changes(request: { path: string; cursor: string; waitMs: number }): Promise<WatchAnswer>;
  /** Resolves to false where none was begun by that name. */
  endWatch(transfer: string): Promise<boolean>;
  /** As of `Files`; they share the watches. */
  beneath(root: string): Trees;
  /** Ends the watches. */
  close(): void;
}

export interface Sessions {
  open(options: {
    session: string;
    shell?: string;
    cwd?: string;
    env?: Record<string, string | null>;
  }): Promise<SessionView>;
  close(session: string): Promise<boolean>;
  list(): SessionView[];
}

export interface Executor {
  /** Begins a command; never throws for what the command did wrong (that is an outcome), only SandmeshErrors for a
   * bad request. `sink.ended` may be called before this returns. */
  exec(request: ParsedExec, sink: CommandSink): RunningCommand;
  readonly files: Files;
  /** Left out by one that has no files of that kind: its verbs are `unsupported`. */
  readonly trees?: Trees;
  readonly sessions: Sessions;
  info(): Promise<ExecutorInfo>;
  /** Ends all commands and sessions, within `graceMs`. */
  close(graceMs: number): Promise<void>;
}

export type ParsedExec = ExecRequest;
export type ReadRequestParsed = { path: string; offset: number; length?: number };
/** What only the executor knows of `info`. */
export type ExecutorInfo = Omit<
  InfoAnswer,
  | "sandbox"
  | "tenant"
  | "incarnation"
  | "generation"
  | "uptime_ms"
  | "boot_ms"
  | "commands_running"
  | "image"
  | "not_isolated"
>;
