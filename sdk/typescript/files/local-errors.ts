// This machine's own file errors, in the same class as a sandbox's.
import { FileError } from "../../../broker/contract/index.ts";

/** A system error becomes a FileError with its errno name; any other stays what it is. */
export function localError(path: string, error: Error): Error {
  if (!("code" in error && typeof error.code === "string" && "syscall" in error)) return error;
  return new FileError(`${path}, on this machine: ${error.message}`, { reason: error.code, cause: error });
}

export async function localErrors<T>(path: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw error instanceof Error ? localError(path, error) : error;
  }
}
