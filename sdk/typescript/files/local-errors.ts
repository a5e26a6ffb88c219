// This machine's own file errors, in the same class as a sandbox's.
import { FileError } from "../../../broker/contract/index.ts";

const errnoOf = (error: unknown): string | undefined =>
  error instanceof Error && "code" in error && typeof error.code === "string" && "syscall" in error
    ? error.code
    : undefined;

/** A system error becomes a FileError with its errno name; any other stays what it is. */
export function localError(path: string | Buffer, error: unknown): unknown {
  const reason = errnoOf(error);
  if (reason === undefined || !(error instanceof Error)) return error;
  return new FileError(`${path}, on this machine: ${error.message}`, { reason, cause: error });
}

export async function localErrors<T>(path: string | Buffer, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw localError(path, error);
  }
}

/** What `work` answers about a path; undefined where nothing is there. All other errors are thrown. */
export async function ifThere<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return undefined;
    throw error;
  }
}
