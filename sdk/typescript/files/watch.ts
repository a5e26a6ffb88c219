// Changes in a folder of a sandbox, as they come: each request waits for the next ones, from a cursor on.
import { NotFoundError } from "../../../broker/contract/index.ts";
import { given, nothingElse } from "../arguments.ts";
import { defined } from "../spec.ts";
import type { Box } from "../wire/box.ts";

export interface FileChange {
  /** Below the folder; empty for an overflow. */
  path: string;
  kind: "changed" | "removed" | "overflow";
}

/** The daemon's answer comes within 20 s. */
const ANSWER_MS = 30_000;

/** Throws FileError where the path is not there. A watch that was lost on the way (the connection was away for a
 * minute) is begun anew, and said so by an overflow. */
export async function* watchFolder(
  box: Box,
  path: string,
  options: { recursive?: boolean; signal?: AbortSignal },
): AsyncGenerator<FileChange, void, void> {
  const { recursive, signal, ...rest } = given(options);
  nothingElse(rest);
  const ask = (cursor?: string) =>
    box.call("watch", defined({ path, recursive, cursor }), {
      signal,
      againAfterMs: ANSWER_MS,
      timeoutMs: 24 * 3600 * 1000,
    });
  let { cursor } = await ask();
  for (;;) {
    const {
      cursor: next,
      changes,
      overflow,
    } = await ask(cursor).catch(async (error: unknown) => {
      if (!(error instanceof NotFoundError)) throw error;
      return { ...(await ask()), overflow: true };
    });
    cursor = next;
    if (overflow) yield { path: "", kind: "overflow" };
    yield* changes;
  }
}
