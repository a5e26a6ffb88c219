// Options of a command, as users write them, and the exec request that they become.
import {
  type ExecRequest,
  FIRST_CREDIT_BYTES,
  MAX_CHUNK_BYTES,
  newUuidV7,
} from "../../../broker/contract/index.ts";
import { bytesOf, given, invalid, isIterable, type Names, onlyKnown, onlyWellFormed } from "../arguments.ts";
import { defined } from "../spec.ts";
import { bytes, type Duration, milliseconds, type Size, timeLimit } from "../units.ts";
import type { SandboxRequest } from "../wire/caller.ts";
import type { Source } from "../wire/parts.ts";
import type { Patience } from "../wire/watch.ts";

/** Text (as UTF-8), bytes, or parts as they come. */
export type Input = string | Uint8Array | AsyncIterable<string | Uint8Array> | Iterable<Uint8Array>;

export interface CommandOptions {
  /** Working folder; default the sandbox's. Where it is missing the outcome is `not_started`. */
  cwd?: string;
  /** Added to the sandbox's environment; null removes a variable. */
  env?: Record<string, string | null>;
  /** `env` is all there is. */
  envReplace?: boolean;
  /** Name or uid, optionally `:group` or `:gid`. */
  user?: string;
  umask?: number;
  /** -20 to 19. */
  nice?: number;
  rlimits?: ExecRequest["rlimits"];
  /** Default: empty. An iterable that throws, or gives what is neither text nor bytes, ends the command: CanceledError;
   * of one that `start` has started the outcome is `canceled`. */
  stdin?: Input;
  /** Ends the command's whole tree after this, with the outcome `timed_out`; above 0, default: never. */
  timeout?: Duration;
  /** Between SIGTERM and SIGKILL at a time-out or cancel; default 1 s, at most 60 s. */
  grace?: Duration;
  /** Of each stream, bytes or "64MiB"; default 8 MiB, and no limit where the output is read as a stream. What is over
   * is left out, and the result says how much. */
  outputLimit?: Size;
  /** What to keep of more output: its `head` (default), its `tail`, or `fail`: end the command. */
  keep?: "head" | "tail" | "fail";
  /** stderr into stdout, in order. */
  merge?: boolean;
  /** `all`: the end is when background processes have let go of the output as well; default `leader`. */
  wait?: "leader" | "all";
  /** Run in this open session (see `Sandbox.shell`). */
  session?: string;
  /** Aborting ends the command's whole tree in the sandbox, and throws CanceledError. */
  signal?: AbortSignal;
  /** UUIDv7; the same one again does not run the command again, but answers the first one's result. */
  id?: string;
}

/** Of all ways to run a command; those that are not of one of them are taken out before. */
const NAMES: Names<CommandOptions & { check?: boolean; stdinOpen?: boolean }> = {
  cwd: true,
  env: true,
  envReplace: true,
  user: true,
  umask: true,
  nice: true,
  rlimits: true,
  stdin: true,
  timeout: true,
  grace: true,
  outputLimit: true,
  keep: true,
  merge: true,
  wait: true,
  session: true,
  signal: true,
  id: true,
  check: true,
  stdinOpen: true,
};

export type WireExec = SandboxRequest<"exec">;

/** How far output may be ahead of its reader, per stream, when that has given credit once: more than goes through in the
 * time that the credit for it takes to come back on a busy machine. */
export const CREDIT_BYTES = 4 * 1024 * 1024;
/** Of all streams of a connection together: a server drops one that it cannot write 64 MB to, as when this program does not
 * come to reading for a while. */
const ALL_CREDIT_BYTES = 32 * 1024 * 1024;
/** But so much each, that it goes on. */
const LEAST_CREDIT_BYTES = 256 * 1024;

/** The credit of one of `streams`. */
export const creditOf = (streams: number): number =>
  Math.min(CREDIT_BYTES, Math.max(LEAST_CREDIT_BYTES, Math.floor(ALL_CREDIT_BYTES / Math.max(1, streams))));
/** Beside the time limit and the grace, until the answer of a sandbox that is there must be here. */
const SLACK_MS = 5_000;

export interface Prepared {
  request: WireExec & { id: string };
  /** Still to be sent; undefined where all is in the request. */
  stdin: Source | undefined;
  /** How long the answer is waited for; undefined: for ever. */
  patience: Patience | undefined;
}

/** The wire's greatest output limit: none, where a reader takes the output as it comes. */
const UNLIMITED_BYTES = 64 * 1024 * 1024 * 1024;

/** Who reads as it comes wants all of it: nothing is held for long, and a slow reader slows the command. A `tail` or
 * `fail` asks for a limit. */
export function unlimited<O extends CommandOptions>(options: O): O {
  const limited = given(options).outputLimit !== undefined || (options.keep ?? "head") !== "head";
  return limited ? options : { ...options, outputLimit: UNLIMITED_BYTES };
}

function commandOf(command: string | readonly string[]): { argv?: string[]; shell?: string } {
  onlyWellFormed({ command });
  if (typeof command === "string") return { shell: command };
  if (Array.isArray(command) && command.every((word) => typeof word === "string"))
    return { argv: [...command] };
  throw invalid(
    "command",
    "must be text (a line for the shell) or a list of texts (a program and its arguments)",
  );
}

function checkEnv(env: CommandOptions["env"]): void {
  if (env === undefined) return;
  if (typeof env !== "object" || env === null || Array.isArray(env)) throw invalid("env", "must be a map");
  for (const name in env) {
    const value: unknown = env[name];
    if (typeof value !== "string" && value !== null)
      throw invalid(`env.${name}`, "must be text, or null to remove it");
  }
}

/** A text is a line for the shell, an array a program and its arguments. Throws InvalidRequestError that names the
 * option at fault. */
export function prepare(
  command: string | readonly string[],
  options: CommandOptions,
  stdinOpen = false,
): Prepared {
  onlyKnown(options, NAMES);
  const id = options.id ?? newUuidV7();
  checkEnv(options.env);
  const timeoutMs = options.timeout === undefined ? undefined : timeLimit(options.timeout, "timeout");
  const graceMs = options.grace === undefined ? undefined : milliseconds(options.grace, "grace");
  const { inline, rest } = splitStdin(options.stdin);
  const request = defined({
    id,
    ...commandOf(command),
    session: options.session,
    cwd: options.cwd,
    env: options.env,
    env_replace: options.envReplace,
    user: options.user,
    umask: options.umask,
    nice: options.nice,
    rlimits: options.rlimits,
    stdin: inline,
    stdin_open: stdinOpen || rest !== undefined || undefined,
    timeout_ms: timeoutMs,
    grace_ms: graceMs,
    output_limit_bytes:
      options.outputLimit === undefined ? undefined : bytes(options.outputLimit, "outputLimit"),
    keep: options.keep,
    merge: options.merge,
    wait: options.wait,
    credit_bytes: FIRST_CREDIT_BYTES,
  });
  onlyWellFormed(request);
  const patience =
    timeoutMs === undefined ? undefined : { limitMs: timeoutMs, graceMs: (graceMs ?? 1_000) + SLACK_MS };
  return { request, stdin: rest, patience };
}

/** Little is sent with the request; much, or what is still coming, behind it. */
function splitStdin(stdin: Input | undefined): { inline: Uint8Array | undefined; rest: Prepared["stdin"] } {
  if (stdin === undefined) return { inline: undefined, rest: undefined };
  if (typeof stdin === "string" || stdin instanceof Uint8Array) {
    const all = bytesOf(stdin, "stdin");
    return all.length <= MAX_CHUNK_BYTES
      ? { inline: all, rest: undefined }
      : { inline: undefined, rest: [all] };
  }
  if (isIterable(stdin)) return { inline: undefined, rest: stdin };
  throw invalid("stdin", "must be text, bytes or an iterable of them");
}
