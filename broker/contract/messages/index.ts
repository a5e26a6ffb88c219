// All messages by verb: the one list from which servers validate, SDK vectors and the reference page are made.
import type * as v from "valibot";
import * as control from "./control.ts";
import * as exec from "./exec.ts";
import * as files from "./files.ts";
import * as info from "./info.ts";
import * as pool from "./pool.ts";
import * as session from "./session.ts";
import * as trees from "./trees.ts";

export type Schema = v.GenericSchema<unknown, unknown>;

export interface Verb {
  request: Schema;
  /** The one answer, or the frames, the last of them ending it. */
  answer: Schema | { frames: readonly Schema[] };
  about: string;
}

const verb = <const V extends Verb>(definition: V): V => definition;
const commandFrames = { frames: [exec.ChunkFrame, exec.StartedFrame, exec.EndFrame] } as const;
const fileFrames = { frames: [exec.ChunkFrame, files.FileEndFrame] } as const;

/** `sbx.v1.<tenant>.<sandbox>.<verb>`. Beside them `sh` (raw bodies, see info.ts) and `credit` (no answer). */
export const SANDBOX_VERBS = {
  ping: verb({ request: info.PingRequest, answer: info.PingAnswer, about: "Answers at once" }),
  info: verb({ request: info.InfoRequest, answer: info.InfoAnswer, about: "What the sandbox is and uses" }),
  exec: verb({ request: exec.ExecRequest, answer: commandFrames, about: "Runs a command" }),
  attach: verb({
    request: exec.AttachRequest,
    answer: commandFrames,
    about: "Follows a command, or reads its result",
  }),
  stdin: verb({ request: exec.StdinRequest, answer: exec.StdinAnswer, about: "Writes to a command" }),
  signal: verb({ request: exec.SignalRequest, answer: exec.RunningAnswer, about: "Signals a command" }),
  cancel: verb({
    request: exec.CancelRequest,
    answer: exec.RunningAnswer,
    about: "Ends a command and its tree",
  }),
  resize: verb({
    request: exec.ResizeRequest,
    answer: exec.RunningAnswer,
    about: "Sets a terminal's window",
  }),
  commands: verb({ request: exec.CommandsRequest, answer: exec.CommandsAnswer, about: "Lists commands" }),
  session_open: verb({
    request: session.SessionOpenRequest,
    answer: session.SessionView,
    about: "Opens a persistent shell",
  }),
  session_close: verb({
    request: session.SessionCloseRequest,
    answer: session.SessionCloseAnswer,
    about: "Ends a session",
  }),
  sessions: verb({
    request: session.SessionsRequest,
    answer: session.SessionsAnswer,
    about: "Lists sessions",
  }),
  read: verb({ request: files.ReadRequest, answer: fileFrames, about: "Reads a file" }),
  write: verb({ request: files.WriteRequest, answer: files.WriteAnswer, about: "Writes a file, atomically" }),
  stat: verb({ request: files.StatRequest, answer: files.FileStat, about: "Describes a path" }),
  list: verb({ request: files.ListDirRequest, answer: files.ListDirAnswer, about: "Lists a folder" }),
  remove: verb({ request: files.RemoveRequest, answer: files.DoneAnswer, about: "Removes a file or folder" }),
  mkdir: verb({ request: files.MkdirRequest, answer: files.DoneAnswer, about: "Makes a folder" }),
  rename: verb({ request: files.RenameRequest, answer: files.DoneAnswer, about: "Renames a path" }),
  pack: verb({ request: files.PackRequest, answer: fileFrames, about: "Reads a tree as tar" }),
  unpack: verb({ request: files.UnpackRequest, answer: files.WriteAnswer, about: "Writes a tree from tar" }),
  abort_transfer: verb({
    request: files.AbortTransferRequest,
    answer: files.DoneAnswer,
    about: "Throws away an unfinished upload",
  }),
  hash: verb({ request: trees.HashRequest, answer: trees.HashAnswer, about: "The sha256 of a file" }),
  attributes: verb({
    request: trees.AttributesRequest,
    answer: files.DoneAnswer,
    about: "Sets mode, owner and time",
  }),
  glob: verb({ request: trees.GlobRequest, answer: trees.GlobAnswer, about: "Finds paths by a pattern" }),
  search: verb({
    request: trees.SearchRequest,
    answer: trees.SearchAnswer,
    about: "Finds lines that contain a text",
  }),
  watch: verb({
    request: trees.WatchRequest,
    answer: trees.WatchAnswer,
    about: "Tells what changes in a folder",
  }),
} as const;
export type SandboxVerb = keyof typeof SANDBOX_VERBS;

/** `pool.v1.<tenant>.<verb>`. */
export const POOL_VERBS = {
  acquire: verb({ request: pool.AcquireRequest, answer: pool.Grant, about: "Asks for a sandbox" }),
  confirm: verb({
    request: pool.ConfirmRequest,
    answer: pool.ConfirmAnswer,
    about: "Takes a granted sandbox",
  }),
  renew: verb({ request: pool.RenewRequest, answer: pool.RenewAnswer, about: "Keeps a run alive" }),
  release: verb({
    request: pool.ReleaseRequest,
    answer: pool.ReleaseAnswer,
    about: "Ends a sandbox, an acquire or a run",
  }),
  list: verb({ request: pool.ListRequest, answer: pool.ListAnswer, about: "Lists the tenant's sandboxes" }),
  status: verb({ request: pool.StatusRequest, answer: pool.StatusAnswer, about: "The pool in figures" }),
  drain: verb({ request: pool.DrainRequest, answer: pool.DrainAnswer, about: "Stops taking acquires" }),
} as const;
export type PoolVerb = keyof typeof POOL_VERBS;

/** `ctl.v1.<tenant>.<sandbox>.<verb>`, published without an answer. */
export const CONTROL_VERBS = {
  welcome: control.Welcome,
  grant: control.GrantControl,
  renew: control.RenewControl,
  release: control.ReleaseControl,
  credential: control.CredentialControl,
} as const;
export type ControlVerb = keyof typeof CONTROL_VERBS;

/** `enr.v1.<tenant>.<sandbox>`. */
export const ENROL = verb({
  request: control.EnrolRequest,
  answer: control.EnrolAnswer,
  about: "A daemon's enrolment",
});

export type RequestOf<V extends Verb> = v.InferInput<V["request"]>;
export type ParsedOf<V extends Verb> = v.InferOutput<V["request"]>;
export type AnswerOf<V extends Verb> = V["answer"] extends Schema
  ? v.InferOutput<V["answer"]>
  : V["answer"] extends { frames: readonly (infer F)[] }
    ? F extends Schema
      ? v.InferOutput<F>
      : never
    : never;
