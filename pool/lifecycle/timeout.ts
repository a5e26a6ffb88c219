// The error of an acquire whose caller's time ran out.
import { AcquireTimeoutError } from "../../broker/contract/index.ts";

const STOOD = { queued: "in the queue", creating: "being created", booting: "booting" } as const;

/** `where` it stood, so that a caller can tell a full queue from a slow boot. */
export function acquireTimeout(where: keyof typeof STOOD, sandbox?: string): AcquireTimeoutError {
  return new AcquireTimeoutError(`no sandbox within the acquire's time: it was still ${STOOD[where]}`, {
    reason: where,
    ...(sandbox === undefined ? {} : { sandbox }),
  });
}
