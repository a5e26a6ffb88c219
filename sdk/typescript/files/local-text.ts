// Small texts of this machine, such as a credential: also from a pipe, as of `<(…)`, and never without end.
import { constants } from "node:fs";
import { DeadlineError, FileError, InvalidRequestError } from "../../../broker/contract/index.ts";
import { BoundedText, hasName, type TextKind } from "../../../broker/credentials/bounded-file.ts";
import { pause, throwIfAborted } from "../wire/pause.ts";

/** Someone may type a password before the pipe's other end writes. */
const QUIET_MS = 60_000;
const PAUSE_MS = 20;
/** Neither a fifo without a writer nor a terminal is waited for by a call to the kernel: no signal would be heard there. */
const AT_ONCE = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY;

/** For how long what has no end yet is read on. */
export interface Patience {
  signal?: AbortSignal | undefined;
  /** Of `performance.now()`. */
  until?: number | undefined;
}

/** The text of what is at `path`, read once to its end, and whether it is a regular file, which may be read again. Throws
 * InvalidRequestError where it is too large, or nothing comes for a minute; DeadlineError; CanceledError; the system's
 * errors. */
export async function readText(
  path: string,
  kind: TextKind,
  { signal, until = Number.POSITIVE_INFINITY }: Patience,
): Promise<[text: string, isFile: boolean]> {
  const reading = new BoundedText(path, kind, AT_ONCE);
  try {
    const { found } = reading;
    // Of a fifo with a name nothing comes, too, as long as no writer has opened it.
    let hasWriter = !found.isFIFO();
    for (let quietUntil = performance.now() + QUIET_MS; ; ) {
      const got = reading.more();
      if (got === 0 && (hasWriter || !hasName(path))) return [reading.text, found.isFile()];
      hasWriter ||= got !== 0;
      const { field } = kind;
      if (performance.now() > until) {
        const message = `${field}: the end of ${path} did not come in time; does anyone write it?`;
        throw new DeadlineError(message, { field });
      }
      if (got) quietUntil = performance.now() + QUIET_MS;
      else if (performance.now() > quietUntil) {
        const message = `${field}: nothing came from ${path} for ${QUIET_MS / 1000} s`;
        throw new InvalidRequestError(message, { field });
      } else await pause(PAUSE_MS, signal);
      throwIfAborted(signal);
    }
  } finally {
    reading.close();
  }
}

/** As `readText`, at once, of a regular file and nothing else. */
export function readFileText(path: string, kind: TextKind): string {
  const reading = new BoundedText(path, kind, AT_ONCE);
  try {
    if (!reading.found.isFile()) throw new FileError(`${path} is no file`, { reason: "EINVAL" });
    return reading.all();
  } finally {
    reading.close();
  }
}
