// Changes in a folder of a sandbox, as they come: each request waits for the next ones, from a cursor on.
import { FileError, NotFoundError, newUuidV7 } from "../../../broker/contract/index.ts";
import { given, nothingElse } from "../arguments.ts";
import { defined } from "../spec.ts";
import type { Box } from "../wire/box.ts";
import { abortTransfer } from "./read.ts";

export interface FileChange {
  /** Below the folder; empty for an overflow. */
  path: string;
  /** A folder that was removed is gone with all below it, of which nothing else need be told; of one that was replaced that
   * is told, too, ahead of what is there now. */
  kind: "changed" | "removed" | "overflow";
}

/** The daemon's answer comes within 20 s; the first one later where many folders are watched. */
const ANSWER_MS = 30_000;

/** Throws FileError where the path is not there. A watch that was lost (the connection was away for a minute, or the
 * folder was replaced) is begun anew, and said so by an overflow; so is one that may have begun late, since the first question
 * was lost or had to wait for the connection. */
export async function* watchFolder(
  box: Box,
  place: { path: string; root?: string },
  options: { recursive?: boolean; signal?: AbortSignal },
): AsyncGenerator<FileChange, void, void> {
  const { recursive, signal, ...rest } = given(options);
  nothingElse(rest);
  const asked = { signal, againAfterMs: ANSWER_MS, timeoutMs: 24 * 3600 * 1000 };
  const ask = (more: { transfer: string } | { cursor: string }, onAgain = () => {}) =>
    box.call("watch", { ...place, ...defined({ recursive, ...more }) }, { ...asked, onAgain });
  let transfer = newUuidV7();
  let isOver = false;
  try {
    let isLate = box.caller.link.awayMs > 0;
    let { cursor } = await ask({ transfer }, () => (isLate = true));
    if (isLate) yield { path: "", kind: "overflow" };
    for (;;) {
      const answer = await ask({ cursor }).catch(async (error: unknown) => {
        if (!(error instanceof NotFoundError)) throw error;
        transfer = newUuidV7();
        return { ...(await ask({ transfer })), overflow: true };
      });
      cursor = answer.cursor;
      if (answer.overflow) yield { path: "", kind: "overflow" };
      yield* answer.changes;
    }
  } catch (error) {
    isOver = error instanceof FileError;
    throw error;
  } finally {
    // The sandbox would watch on for a minute.
    if (!isOver) abortTransfer(box, transfer);
  }
}
