// How far the readers of a command may be behind before it waits for them, and what of its output is held for them. Pure.
import type { OutputStream } from "../contract/index.ts";
import type { Listener } from "./command.ts";
import type { OutputBuffer } from "./output.ts";

/** Unsent bytes of a stream at which its command is paused, and at which it goes on. */
const PAUSE_BYTES = 1024 * 1024;
const RESUME_BYTES = 256 * 1024;
/** The same while all commands together hold more than they are to. */
const TIGHT_PAUSE_BYTES = 64 * 1024;
const TIGHT_RESUME_BYTES = 16 * 1024;
/** A stream that has grown beyond this no longer holds what all its readers have said that they have, but for the last part;
 * nor does a shorter one while all commands together hold more than they are to, without that part. (What was only sent may
 * be lost with a connection, and is asked for again.) */
const WHOLE_BYTES = 8 * 1024 * 1024;
const BEHIND_BYTES = 1024 * 1024;
/** That last part where the command has ended: only whoever looks at its last lines asks for it then. */
const BEHIND_END_BYTES = 256 * 1024;

/** Of the reader that is furthest behind, bytes; undefined where none counts. */
export function lagOf(listeners: Iterable<Listener>): number | undefined {
  let most: number | undefined;
  for (const listener of listeners) {
    const lag = listener.lag();
    if (lag !== undefined && (most === undefined || lag > most)) most = lag;
  }
  return most;
}

/** How far readers may be behind before the command waits for them, or, where it is paused, is to wait on. `tight`: all
 * commands together hold more than they are to. */
export function mayLag(paused: boolean, tight: boolean): number {
  if (tight) return paused ? TIGHT_RESUME_BYTES : TIGHT_PAUSE_BYTES;
  return paused ? RESUME_BYTES : PAUSE_BYTES;
}

/** The offset of a stream of a running command that is held from there on; undefined where it is to stay as it is. */
export function neededFrom(
  stream: OutputStream,
  buffer: OutputBuffer,
  listeners: Iterable<Listener>,
  tight: boolean,
): number | undefined {
  const behind = tight ? 0 : BEHIND_BYTES;
  const isShort = buffer.total <= WHOLE_BYTES;
  if (buffer.keep === "tail" || (isShort && !tight) || buffer.held <= behind) return undefined;
  let slowest = buffer.end;
  for (const listener of listeners) {
    if (listener.lag() !== undefined) slowest = Math.min(slowest, listener.position(stream));
    // It is answered with the head, at the end.
    else if (isShort) return undefined;
  }
  return slowest - behind;
}

/** The same of a command that has ended. What was held whole by then, for whoever asks again, stays so. */
export function neededAtEnd(
  stream: OutputStream,
  buffer: OutputBuffer,
  readers: Iterable<Pick<Listener, "position">>,
): number | undefined {
  if (buffer.keep === "tail" || buffer.start === 0) return undefined;
  let slowest = buffer.end;
  for (const reader of readers) slowest = Math.min(slowest, reader.position(stream));
  return slowest - BEHIND_END_BYTES;
}
