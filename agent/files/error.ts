// From a system call's errno to a FileError: what was tried, on which path, why it failed and what helps.
import { getSystemErrorName } from "node:util";
import { errnoOf, FileError, SandmeshError } from "../../broker/contract/index.ts";

/** What people need to know about the errnos that files give; others are told by their name alone. */
const EXPLAINED: Record<string, string> = {
  EAGAIN: "another program holds it, or it has nothing to give now; try again",
  EACCES: "permission denied; the sandbox's user lacks rights on the path or on a folder that leads to it",
  EBUSY: "it is in use, such as a mount point; unmount it, or name what is inside",
  EDQUOT: "the disk quota is used up; remove something first",
  EEXIST: "it exists already",
  EFBIG: "the file would be larger than its file system or limit allows",
  EINVAL: "the system refused the value, such as an owner that the sandbox does not have",
  EIO: "the disk failed",
  EISDIR: "it is a folder",
  ELOOP: "symbolic links lead in a circle",
  EMFILE: "the daemon has too many files open; finish or abort other transfers",
  ENAMETOOLONG: "a name in the path is longer than the file system allows",
  ENOENT: "no such file or folder",
  ENOSPC: "the disk is full; remove something first",
  ENOTDIR: "a part of the path is not a folder",
  ENOTEMPTY: "the folder is not empty",
  EPERM: "not permitted for the sandbox's user",
  EROFS: "the file system is read-only; use a writable folder",
  ETXTBSY: "it is a program that is running",
  EXDEV: "the two paths are on different file systems; copy it and remove the original",
};

/** A FileError of our own making. `message` says what happened and what to do. */
export function fileFault(reason: string, message: string): FileError {
  return new FileError(message, { reason });
}

/** What `act` threw, as a FileError; errors that are typed already stay as they are. `doing` is a verb: "read". */
export function toFileError(doing: string, path: string, thrown: unknown): SandmeshError {
  if (thrown instanceof SandmeshError) return thrown;
  const reason = errnoOf(thrown);
  if (reason === undefined) {
    const text = thrown instanceof Error ? thrown.message : String(thrown);
    return new FileError(`cannot ${doing} ${path}: ${text}`, { reason: "EIO", cause: thrown });
  }
  const why = EXPLAINED[reason];
  const text = why === undefined ? reason : `${why} (${reason})`;
  return new FileError(`cannot ${doing} ${path}: ${text}`, { reason, cause: thrown });
}

/** Runs `act`; whatever it throws comes out as a FileError. */
export async function withPath<T>(doing: string, path: string, act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (thrown) {
    throw toFileError(doing, path, thrown);
  }
}

/** As the kernel gives them, for `errno`. */
export const EAGAIN = -11;
export const EEXIST = -17;
export const ENOTDIR = -20;
export const ELOOP = -40;

/** Of a call of the engine's that gave this negative number. */
export function errno(result: number): Error {
  const code = getSystemErrorName(result);
  return Object.assign(new Error(code), { code });
}
