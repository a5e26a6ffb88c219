// Why a command could not be started: from the step that failed and its errno to the outcome's reason and a sentence.
import { constants } from "node:os";
import {
  errnoOf,
  InternalError,
  type NOT_STARTED_REASONS,
  type Outcome,
  type SandmeshError,
  toSandmeshError,
} from "../../broker/contract/index.ts";
import type { StartFailure } from "../native/listener.ts";

type Reason = (typeof NOT_STARTED_REASONS)[number];
type NotStarted = Extract<Outcome, { type: "not_started" }>;
const E = constants.errno;

/** As in engine.h. */
const STAGE = { clone: 1, cwd: 2, user: 3, limit: 4, nice: 5, tty: 6, exec: 7 } as const;
const DETAIL = { interpreter: 1, notExecutable: 2 } as const;

export const notStarted = (reason: Reason, message: string): NotStarted => ({
  type: "not_started",
  reason,
  message,
});

export interface Attempt {
  program: string;
  cwd: string;
  user: string | undefined;
}

/** The outcome of a start that failed. */
export function failureOutcome(failure: StartFailure, attempt: Attempt): NotStarted {
  const { stage, errno } = failure;
  const { cwd, user } = attempt;
  const program = named(attempt.program);
  const what = errnoName(errno);
  // These mean the same wherever they come up.
  if (errno === E.ENOMEM) return notStarted("out_of_memory", `no memory to start ${program}`);
  if (errno === E.EMFILE || errno === E.ENFILE)
    return notStarted("out_of_files", `no file descriptors left to start ${program} (${what})`);
  switch (stage) {
    case STAGE.cwd:
      return errno === E.EACCES
        ? notStarted("permission", `the working folder ${cwd} may not be entered by this user`)
        : notStarted(
            "no_such_cwd",
            `the working folder ${cwd} ${errno === E.ENOTDIR ? "is not a folder" : `cannot be entered (${what})`}`,
          );
    case STAGE.user:
      return errno === E.EAGAIN
        ? notStarted("out_of_pids", `the user ${user ?? ""} has too many processes`)
        : notStarted("permission", `the daemon may not run commands as ${user ?? "that user"} (${what})`);
    case STAGE.limit:
      return notStarted(
        "permission",
        `a limit (rlimits) may not be set that high, or is not valid (${what})`,
      );
    case STAGE.nice:
      return notStarted("permission", `the daemon may not set that nice value (${what})`);
    case STAGE.exec:
      return execFailure(failure, attempt.program);
    default:
      return errno === E.EAGAIN
        ? notStarted("out_of_pids", `the sandbox's limit of processes is reached; ${program} was not started`)
        : notStarted("permission", `${program} could not be started (${what})`);
  }
}

/** In quotes where it would not stand out in a sentence: an empty name, one with a space in it. */
const named = (program: string): string => (/^[^\s"]+$/.test(program) ? program : JSON.stringify(program));

function execFailure({ errno, detail }: StartFailure, name: string): NotStarted {
  const program = named(name);
  switch (errno) {
    case E.ENOENT:
      return detail === DETAIL.interpreter
        ? notStarted("exec_format", `${program} is there, but its interpreter (or loader) is not`)
        : notStarted(
            "no_such_program",
            `there is no program ${program}${name.includes("/") ? "" : " in PATH"}`,
          );
    case E.ENOTDIR:
    case E.ENAMETOOLONG:
      return notStarted("no_such_program", `there is no program ${program} (${errnoName(errno)})`);
    case E.EACCES:
      return detail === DETAIL.notExecutable
        ? notStarted("not_executable", `${program} is not an executable file`)
        : notStarted("permission", `${program} may not be executed by this user`);
    case E.ENOEXEC:
      return notStarted(
        "exec_format",
        `${program} is no program of this machine, nor a script that names its interpreter`,
      );
    case E.E2BIG:
      return notStarted("argument_list_too_long", `the arguments and environment of ${program} are too long`);
    case E.EAGAIN:
      return notStarted("out_of_pids", `the user has too many processes to start ${program}`);
    case E.EPERM:
      return notStarted("permission", `${program} may not be executed (EPERM)`);
    default:
      return notStarted("exec_format", `${program} could not be executed (${errnoName(errno)})`);
  }
}

/** The error of a command that ended, where nobody can tell how. */
export const statusTaken = (): InternalError =>
  new InternalError("the command ended, but another part of the daemon has taken its exit status", {
    started: "yes",
  });

const ERRNO_NAMES = new Map(Object.entries(E).map(([name, number]) => [number, name]));
const errnoName = (errno: number): string => ERRNO_NAMES.get(errno) ?? `errno ${errno}`;

/** The outcome where not even the pipes could be made. */
export const noPipes = (errno: number, attempt: Attempt): NotStarted =>
  failureOutcome({ stage: STAGE.clone, errno, detail: 0 }, attempt);

/** Whether no descriptor was left, to this process or to the machine. */
export const isOutOfFiles = (thrown: unknown): boolean =>
  ["EMFILE", "ENFILE"].includes(errnoOf(thrown) ?? "");

/** What a session's command is told for which the daemon itself lacked something: descriptors, memory, room in a file. */
export function startLack(thrown: unknown): NotStarted | SandmeshError {
  const what = errnoOf(thrown);
  switch (what) {
    case undefined:
      return toSandmeshError(thrown);
    case "EMFILE":
    case "ENFILE":
      return notStarted("out_of_files", `no file descriptors left to start the command (${what})`);
    case "ENOMEM":
    case "ENOSPC":
      return notStarted("out_of_memory", `no memory to start the command (${what})`);
    case "EFBIG":
      return notStarted("permission", "the command is longer than the daemon's limit of file size (EFBIG)");
    default:
      return notStarted("permission", `the command could not be handed to its shell (${what})`);
  }
}
