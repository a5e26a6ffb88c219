// This machine's own file errors, in the same class as a sandbox's.
import { errnoOf, FileError } from "../../../broker/contract/index.ts";

/** As `errnoOf`, of what a system call threw and nothing else: our own errors have a code, too. */
export const systemErrno = (error: unknown): string | undefined =>
  error instanceof Error && ("syscall" in error || TOO_LONG.test(error.message)) ? errnoOf(error) : undefined;

/** Bun refuses a path that is longer than PATH_MAX by itself, and names no system call. */
const TOO_LONG = /^ENAMETOOLONG: /;
/** A path that is told, and the text of an error that repeats it. */
const SHOWN_CHARACTERS = 1_000;

const shown = (path: string): string =>
  path.length <= SHOWN_CHARACTERS ? path : `${path.slice(0, 200)}…${path.slice(-200)}`;

/** A system error becomes a FileError with its errno name; any other stays what it is. */
export function localError(path: string | Buffer, error: unknown): unknown {
  const reason = systemErrno(error);
  if (reason === undefined || !(error instanceof Error)) return error;
  const text = error.message.length > SHOWN_CHARACTERS ? error.message.split(",", 1)[0] : error.message;
  return new FileError(`${shown(path.toString())}, on this machine: ${text}`, { reason, cause: error });
}

export async function localErrors<T>(path: string | Buffer, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw localError(path, error);
  }
}

async function unlessErrno<T>(errno: string, work: () => Promise<T>): Promise<T | undefined> {
  try {
    return await work();
  } catch (error) {
    if (systemErrno(error) === errno) return undefined;
    throw error;
  }
}

/** What `work` answers about a path; undefined where nothing is there. All other errors are thrown. */
export const ifThere = <T>(work: Promise<T>): Promise<T | undefined> => unlessErrno("ENOENT", () => work);

/** What `work` answers, which opened its file with O_NONBLOCK; undefined where it would have had to wait. All other errors
 * are thrown. */
export const ifReady = <T>(work: () => Promise<T>): Promise<T | undefined> => unlessErrno("EAGAIN", work);
