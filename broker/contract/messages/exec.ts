// Commands (`sbx.v1.<tenant>.<sandbox>.<verb>`): exec, attach, credit, stdin, signal, cancel, resize, commands.
import * as v from "valibot";
import { CommandId, Id } from "../ids.ts";
import { Outcome } from "../outcome.ts";
import { SIGNAL_PATTERN } from "../signals.ts";
import { Bytes, Env, Fence, MAX_ARG_BYTES, map, milliseconds, Path, text, Version, whole } from "./common.ts";

/** A part of a stream is at most this long. */
export const MAX_CHUNK_BYTES = 256 * 1024;
/** Of each stream, in an answer of one message; more is streamed, or cut where the caller does not stream. */
export const MAX_INLINE_BYTES = 256 * 1024;
/** Default output limit per stream. */
export const DEFAULT_OUTPUT_LIMIT_BYTES = 8 * 1024 * 1024;
/** Default credit: how far ahead of the reader a stream may be. */
export const DEFAULT_CREDIT_BYTES = 1024 * 1024;
/** SDKs' first credit of a stream, and twice what they read between one `credit` and the next: of half of it each reader is
 * sure (see `CreditRequest`), so this times the readers that take nothing is what they cost. */
export const FIRST_CREDIT_BYTES = 256 * 1024;

/** Of one command's stdin, whose bytes are counted apart: 24 KB of the daemon's memory, until the command ends. */
export const MAX_STDIN_WRITERS = 256;

export const OutputStream = v.picklist(["stdout", "stderr"]);
export type OutputStream = v.InferOutput<typeof OutputStream>;

const Pty = v.object({
  rows: whole("Rows", 10_000, 1),
  cols: whole("Columns", 10_000, 1),
  term: v.optional(text("TERM", 64, 1), "xterm-256color"),
  hang_up_ms: v.optional(
    milliseconds(
      "Hang up (SIGHUP, as a closed terminal does) when for so long no request named it and no credit came; default never",
      1,
    ),
  ),
});

const Host = text("Name or address, as the sandbox sees it", 255, 1);

/** A TCP connection in place of a program: what is written to stdin goes to the other side, what that sends is stdout,
 * the other side's end is a chunk with `eof`, and the end is `exited` 0 when both sides have closed, 1 where the connection
 * was cut. */
const Port = v.variant("type", [
  v.object({
    type: v.pipe(v.literal("connect"), v.description("To a server that the sandbox reaches")),
    host: v.optional(Host, "127.0.0.1"),
    port: whole("TCP port", 65535, 1),
  }),
  v.object({
    type: v.pipe(
      v.literal("listen"),
      v.description(
        "Listens; stdout tells the port in its first line, then the number of each connection in a line",
      ),
    ),
    host: v.optional(Host, "127.0.0.1"),
    port: v.optional(whole("TCP port; 0: any", 65535), 0),
  }),
  v.object({
    type: v.pipe(v.literal("accept"), v.description("Takes over a connection, within 10 s")),
    listener: v.pipe(CommandId, v.description("The listening exec's id")),
    connection: whole("Its number", undefined, 1),
  }),
]);
export type Port = v.InferOutput<typeof Port>;

/** Of one that streams a command. Who asks again gives the token of the first time (see `credit`): the daemon then no longer
 * waits for the reader that had it, whose way was cut, and does not hold back the command for it. */
const Reader = v.optional(
  v.pipe(
    v.string(),
    v.maxLength(128),
    v.description("Token of the question that this one takes the place of"),
  ),
);

/**
 * `exec`. Exactly one of `argv`, `shell` and `port`. Answered by zero or more chunk frames and one end frame; without
 * `credit_bytes` by the end frame alone, with at most MAX_INLINE_BYTES of each stream in it.
 */
export const ExecRequest = v.pipe(
  v.object({
    version: Version,
    ...Fence,
    id: v.optional(
      v.pipe(CommandId, v.description("At most once by this id; without one the daemon makes one")),
    ),
    argv: v.optional(
      v.pipe(
        v.array(text("Argument", MAX_ARG_BYTES)),
        v.minLength(1, "must not be empty"),
        v.maxLength(65536),
      ),
    ),
    shell: v.optional(text("A line for the image's shell", MAX_ARG_BYTES - 1)),
    port: v.optional(v.pipe(Port, v.description("A TCP connection in place of a program"))),
    session: v.optional(v.pipe(Id, v.description("Run the shell line in this open session"))),
    cwd: v.optional(Path),
    env: v.optional(Env),
    env_replace: v.optional(v.boolean(), false),
    user: v.optional(text("Name or uid, optionally :group or :gid", 128, 1)),
    umask: v.optional(whole("umask", 0o777)),
    nice: v.optional(v.pipe(v.number(), v.integer(), v.minValue(-20), v.maxValue(19))),
    rlimits: v.optional(
      map(
        v.picklist(["as", "core", "cpu", "data", "fsize", "memlock", "nofile", "nproc", "stack"]),
        whole("Limit"),
      ),
    ),
    stdin: v.optional(Bytes),
    stdin_open: v.optional(v.pipe(v.boolean(), v.description("More stdin follows by `stdin`")), false),
    timeout_ms: v.optional(milliseconds("Ends the command's tree after this", 1)),
    grace_ms: v.optional(v.pipe(milliseconds("Between SIGTERM and SIGKILL"), v.maxValue(60_000)), 1000),
    output_limit_bytes: v.optional(
      whole("Of each stream", 64 * 1024 * 1024 * 1024),
      DEFAULT_OUTPUT_LIMIT_BYTES,
    ),
    keep: v.optional(v.picklist(["head", "tail", "fail"]), "head"),
    merge: v.optional(v.pipe(v.boolean(), v.description("stderr into stdout, in order")), false),
    wait: v.optional(v.picklist(["leader", "all"]), "leader"),
    pty: v.optional(Pty),
    detach: v.optional(
      v.pipe(v.boolean(), v.description("Answer at the start; read it later by `attach`")),
      false,
    ),
    credit_bytes: v.optional(whole("Stream, this far ahead of the reader", 16 * 1024 * 1024)),
    reader: Reader,
  }),
  v.check(
    (r) => [r.argv, r.shell, r.port].filter((x) => x !== undefined).length === 1,
    "exactly one of argv, shell and port is needed",
  ),
  v.check((r) => r.session === undefined || r.shell !== undefined, "a session takes a shell line"),
);
export type ExecRequest = v.InferOutput<typeof ExecRequest>;

/** A part of an output stream; `offset` counts that stream's bytes from the command's start. */
export const ChunkFrame = v.object({
  type: v.literal("chunk"),
  id: v.string(),
  stream: v.picklist(["stdout", "stderr", "data"]),
  offset: whole("Of data's first byte"),
  data: Bytes,
  eof: v.optional(
    v.pipe(
      v.boolean(),
      v.description("The stream ends behind this, while the command goes on: of a TCP connection"),
    ),
  ),
});
export type ChunkFrame = v.InferOutput<typeof ChunkFrame>;

/** To a detached exec. */
export const StartedFrame = v.object({
  type: v.literal("started"),
  id: v.string(),
  incarnation: v.string(),
  pid: whole("Leader's pid, as the sandbox sees it"),
});
export type StartedFrame = v.InferOutput<typeof StartedFrame>;

const StreamTotal = v.object({
  /** Bytes the command wrote. */
  total_bytes: whole("Written by the command"),
  /** Of them not delivered and not held, for the limit. */
  dropped_bytes: whole("Left out for the limit"),
  /** Where they are missing. */
  dropped_from: v.optional(whole("Offset of the first left out")),
});
export type StreamTotal = v.InferOutput<typeof StreamTotal>;

/** The last frame: the outcome, and the output that was not sent in chunks. */
export const EndFrame = v.object({
  type: v.literal("end"),
  id: v.string(),
  incarnation: v.string(),
  outcome: Outcome,
  stdout: v.optional(Bytes),
  stderr: v.optional(Bytes),
  totals: v.object({ stdout: StreamTotal, stderr: StreamTotal }),
  duration_ms: v.pipe(v.number(), v.description("Start to end, at the daemon")),
  pid: v.optional(whole("Leader's pid")),
  /** Processes of the command that live on, by design. */
  background: v.optional(whole("Processes left in the background")),
  cpu_ms: v.optional(v.number()),
  max_rss_bytes: v.optional(whole("")),
});
export type EndFrame = v.InferOutput<typeof EndFrame>;
export type Frame = ChunkFrame | StartedFrame | EndFrame;

/** `attach`: the frames of a command from these offsets on, while it runs and after it. */
export const AttachRequest = v.object({
  version: Version,
  ...Fence,
  id: CommandId,
  from_stdout: v.optional(whole("Offset"), 0),
  from_stderr: v.optional(whole("Offset"), 0),
  credit_bytes: v.optional(whole("Ahead of the reader", 16 * 1024 * 1024), DEFAULT_CREDIT_BYTES),
  reader: Reader,
});

/** `credit`, published without waiting for an answer: how far the reader has come and how far the daemon may go.
 * Both are offsets and only grow, so that a lost or doubled one does no harm. `token` is the reader's: the last
 * part of the reply subject of the exec, attach, read or pack that it is reading. Half of the first credit may be on its
 * way whatever other readers have; more only as far as 16 MiB of all readers together (4 MiB in a sandbox of 64 MiB) are
 * not. So who gives credit whenever he has read half of the first waits for no other reader, unless twice as much again is
 * on its way to ones that take nothing. */
export const CreditRequest = v.object({
  version: Version,
  token: v.pipe(v.string(), v.maxLength(128)),
  stream: v.picklist(["stdout", "stderr", "data"]),
  received: whole("Offset up to which all has arrived"),
  until: whole("Offset up to which may be sent"),
  left: v.optional(
    v.pipe(
      v.boolean(),
      v.description("The reader is gone: nothing more is sent to it, and no answer; the command goes on"),
    ),
    false,
  ),
});

/** Several may write to one command: each by a token of its own, and counts its bytes from 0, so that what it sends again is
 * told from what another has written. */
const Writer = v.optional(
  v.pipe(
    v.string(),
    v.minLength(1, "must not be empty"),
    v.maxLength(64),
    v.description(
      `Token of who writes, made by it, whose bytes are counted apart; of ${MAX_STDIN_WRITERS} at a command, then the longest silent one is given up. Without one the offset counts all bytes`,
    ),
  ),
);

/** `stdin`: bytes at an offset; repeated ones are skipped, a gap is refused, and so is what another writer's bytes stand in
 * place of. Answered when the bytes are accepted (the answer is the credit: keep a few requests in flight). A daemon counts
 * MAX_STDIN_WRITERS of a command, and beyond that gives up the one that was silent for longest: that one's next bytes are a
 * gap, and its very first ones, if they are sent again as late as that, are taken as new. */
export const StdinRequest = v.object({
  version: Version,
  ...Fence,
  id: CommandId,
  writer: Writer,
  offset: whole("Of the first byte, counted after those in `exec`"),
  data: v.optional(Bytes),
  eof: v.optional(v.boolean(), false),
});
export const StdinAnswer = v.object({
  received: whole("Bytes accepted so far; of this writer, where one was named"),
  writer: v.optional(
    v.pipe(
      v.string(),
      v.description("The request's. A daemon of before does not say it, and counts all bytes together"),
    ),
  ),
});

/** `signal`: to the command's process group. */
export const SignalRequest = v.object({
  version: Version,
  ...Fence,
  id: CommandId,
  signal: v.pipe(
    v.string(),
    v.regex(SIGNAL_PATTERN, "must be the name of a signal of Linux, such as SIGINT or SIGRTMIN+3"),
    v.description(
      "An invalid request to what has no process: a connection, or a command that waits for its turn",
    ),
  ),
});
/** `cancel`: ends the command's tree; its exec is answered with `canceled`. */
export const CancelRequest = v.object({ version: Version, ...Fence, id: CommandId });
/** `resize`: the window of a command with a PTY. */
export const ResizeRequest = v.object({
  version: Version,
  ...Fence,
  id: CommandId,
  rows: whole("Rows", 10_000, 1),
  cols: whole("Columns", 10_000, 1),
});
/** Answer to signal, cancel and resize: whether it still ran. */
export const RunningAnswer = v.object({ running: v.boolean() });

export const CommandView = v.object({
  id: v.string(),
  command: v.pipe(v.string(), v.description("The first 200 characters")),
  session: v.optional(v.string()),
  pid: v.optional(whole("")),
  running: v.boolean(),
  outcome: v.optional(Outcome),
  age_ms: whole("Since its start"),
  readable: v.optional(
    v.object({
      stdout: whole("Offset up to which `attach` can read at this moment"),
      stderr: whole("The same of stderr"),
    }),
  ),
  background: v.optional(v.array(whole("Pids of it that live on"))),
});
/** `commands`: those that run, and those whose result is still held. */
export const CommandsRequest = v.object({ version: Version, ...Fence });
export const CommandsAnswer = v.object({ commands: v.array(CommandView) });
