// The few system calls that sessions need and Bun does not give: pipes that are pipes (Bun's own are sockets, on which
// /dev/stdout cannot be opened), a file in memory, reads and writes that do not wait.
import { dlopen, FFIType, ptr } from "bun:ffi";
import { ftruncateSync, writeSync } from "node:fs";

const { i32, i64_fast, u32, u64, ptr: pointer } = FFIType;
const load = () =>
  dlopen("libc.so.6", {
    pipe2: { args: [pointer, i32], returns: i32 },
    memfd_create: { args: [pointer, u32], returns: i32 },
    open: { args: [pointer, i32], returns: i32 },
    close: { args: [i32], returns: i32 },
    read: { args: [i32, pointer, u64], returns: i64_fast },
    write: { args: [i32, pointer, u64], returns: i64_fast },
    fcntl: { args: [i32, i32, i32], returns: i32 },
    ioctl: { args: [i32, u64, pointer], returns: i32 },
  }).symbols;
let loaded: ReturnType<typeof load> | undefined;
/** Loaded on first use: most sandboxes never open a session. */
const libc = (): ReturnType<typeof load> => (loaded ??= load());

const O_WRONLY = 1;
const O_NONBLOCK = 0o4000;
const O_CLOEXEC = 0o2000000;
const F_SETFL = 4;
const F_SETPIPE_SZ = 1031;
const MFD_CLOEXEC = 1;
const FIONREAD = 0x541b;

/** Descriptors of the daemon's own; none is inherited by what it starts. Where there are none left, each of these throws an
 * error with the code EMFILE, as node:fs does. */
export interface Pipe {
  readonly read: number;
  readonly write: number;
}

function fd(result: number, what: string): number {
  if (result >= 0) return result;
  throw Object.assign(new Error(`the daemon has too many files open to make a ${what}`), { code: "EMFILE" });
}

export function makePipe(): Pipe {
  const ends = new Int32Array(2);
  fd(libc().pipe2(ptr(ends), O_CLOEXEC), "pipe");
  return { read: ends[0] ?? -1, write: ends[1] ?? -1 };
}

/** So many, or none at all. */
export function makePipes(count: number): Pipe[] {
  const made: Pipe[] = [];
  try {
    while (made.length < count) made.push(makePipe());
    return made;
  } catch (thrown) {
    closeAll(made.flatMap(({ read, write }) => [read, write]));
    throw thrown;
  }
}

/** So that reading or writing that end never waits. */
export function makeNonBlocking(end: number): void {
  libc().fcntl(end, F_SETFL, O_NONBLOCK);
}

/** As far as the system allows; what the pipe holds already stays. */
export function growPipe(end: number, bytes: number): void {
  libc().fcntl(end, F_SETPIPE_SZ, bytes);
}

/** Another writing end of the pipe whose reading end this is; it never waits. */
export function openWriter(readEnd: number): number {
  const path = Buffer.from(`/proc/self/fd/${readEnd}\0`);
  return fd(libc().open(ptr(path), O_WRONLY | O_NONBLOCK | O_CLOEXEC), "pipe");
}

/** A reading end of its own, which never waits, of the pipe whose reading end this is. */
export function openReader(readEnd: number): number {
  const path = Buffer.from(`/proc/self/fd/${readEnd}\0`);
  return fd(libc().open(ptr(path), O_NONBLOCK | O_CLOEXEC), "pipe");
}

/** A file that is only in memory. */
export function makeMemoryFile(name: string): number {
  return fd(libc().memfd_create(ptr(Buffer.from(`${name}\0`)), MFD_CLOEXEC), "file in memory");
}

/** Replaces what the file holds. Throws, with the errno's name as its code, where the whole does not go in (a limit of file
 * size, no memory); then the file is not to be used. */
export function setContent(file: number, content: Uint8Array): void {
  for (let at = 0; at < content.length; ) at += writeSync(file, content, at, content.length - at, at);
  ftruncateSync(file, content.length);
}

/** Bytes written, 0 where the pipe is full or nobody can read it. */
export function writeSome(end: number, data: Uint8Array): number {
  if (data.length === 0) return 0;
  return Math.max(0, Number(libc().write(end, ptr(data), data.length)));
}

/** Reads and forgets what is in the pipe. */
export function discard(end: number): void {
  const scrap = new Uint8Array(64 * 1024);
  while (Number(libc().read(end, ptr(scrap), scrap.length)) > 0);
}

/** What is in the pipe, as far as it goes in there. */
export function readSome(end: number, into: Buffer): Buffer {
  return into.subarray(0, Math.max(0, Number(libc().read(end, ptr(into), into.length))));
}

const count = new Int32Array(1);
/** How many bytes wait in the pipe. */
export function waiting(end: number): number {
  return libc().ioctl(end, FIONREAD, ptr(count)) < 0 ? 0 : (count[0] ?? 0);
}

export function closeAll(ends: readonly number[]): void {
  for (const end of ends) libc().close(end);
}
