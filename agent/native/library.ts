// The native library as JavaScript sees it: what is marked EXPORT in the C beside it, and the numbers of engine.h.
import { dlopen, FFIType } from "bun:ffi";

export const BOX_BYTES = 512 * 1024;
export const HEADER_BYTES = 16;
/** What a frame tells. */
export const FRAME = {
  stdout: 1,
  stderr: 2,
  started: 3,
  failed: 4,
  exited: 5,
  closed: 6,
  stdin: 7,
  gone: 8,
  more: 9,
  came: 10,
} as const;
/** Which stream a read is of. */
export const K_OUT = 1;
export const K_ERR = 2;

const SYMBOLS = {
  engine_open: { args: [], returns: FFIType.i32 },
  engine_reap: { args: [], returns: FFIType.i32 },
  engine_hide: { args: [FFIType.ptr], returns: FFIType.i32 },
  engine_soft_files: { args: [FFIType.u32], returns: FFIType.void },
  engine_pipe: { args: [FFIType.u32], returns: FFIType.void },
  engine_box: { args: [FFIType.i32], returns: FFIType.ptr },
  engine_take: { args: [], returns: FFIType.i32 },
  engine_start: { args: [FFIType.ptr, FFIType.u32], returns: FFIType.i64_fast },
  engine_may_group: { args: [FFIType.i32], returns: FFIType.i32 },
  engine_settle: { args: [FFIType.u32, FFIType.i32], returns: FFIType.i32 },
  engine_await: { args: [FFIType.i32, FFIType.i32], returns: FFIType.i32 },
  engine_rest: { args: [FFIType.i32], returns: FFIType.i32 },
  engine_reread: { args: [FFIType.i32, FFIType.ptr, FFIType.u32], returns: FFIType.i32 },
  engine_nudge: { args: [], returns: FFIType.i32 },
  engine_stdin: { args: [FFIType.u32, FFIType.ptr, FFIType.u32, FFIType.i32], returns: FFIType.i32 },
  engine_read: { args: [FFIType.u32, FFIType.i32, FFIType.ptr, FFIType.u32], returns: FFIType.i32 },
  engine_pause: { args: [FFIType.u32, FFIType.i32], returns: FFIType.void },
  engine_signal: { args: [FFIType.u32, FFIType.i32], returns: FFIType.i32 },
  engine_resize: { args: [FFIType.u32, FFIType.i32, FFIType.i32], returns: FFIType.void },
  engine_hang_up: { args: [FFIType.u32], returns: FFIType.void },
  engine_let_go: { args: [FFIType.u32], returns: FFIType.void },
  engine_watch: { args: [FFIType.i32], returns: FFIType.i64_fast },
  engine_watch_readable: { args: [FFIType.i32], returns: FFIType.i64_fast },
  engine_intake: { args: [FFIType.i32], returns: FFIType.i64_fast },
  engine_take_in: { args: [FFIType.u32, FFIType.ptr, FFIType.u32, FFIType.u32], returns: FFIType.i32 },
  engine_unwatch: { args: [FFIType.u32], returns: FFIType.void },
  engine_dial: { args: [FFIType.ptr], returns: FFIType.i32 },
  engine_no_starters: { args: [], returns: FFIType.void },
  engine_no_spare: { args: [], returns: FFIType.void },
  engine_has_spare: { args: [], returns: FFIType.i32 },
  engine_inotify: { args: [], returns: FFIType.i32 },
  engine_inotify_add: { args: [FFIType.i32, FFIType.ptr, FFIType.u32], returns: FFIType.i32 },
  engine_inotify_remove: { args: [FFIType.i32, FFIType.i32], returns: FFIType.void },
  engine_folder: { args: [FFIType.ptr, FFIType.i32, FFIType.ptr], returns: FFIType.i32 },
  engine_entries: { args: [FFIType.i32, FFIType.ptr, FFIType.u32], returns: FFIType.i32 },
  engine_beneath: { args: [FFIType.i32, FFIType.ptr, FFIType.i32], returns: FFIType.i32 },
  engine_seek: { args: [FFIType.i32, FFIType.i64_fast, FFIType.i32], returns: FFIType.i64_fast },
  engine_receive: { args: [FFIType.i32], returns: FFIType.i32 },
} as const;
export type Library = ReturnType<typeof dlopen<typeof SYMBOLS>>["symbols"];

export const openLibrary = (path: string): Library => dlopen(path, SYMBOLS).symbols;
