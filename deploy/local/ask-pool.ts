// What the supervisor asks of the pool, as its operator.
import type * as v from "valibot";
import {
  DrainAnswer,
  encode,
  PoolUnavailableError,
  parseAnswer,
  poolSubject,
  StatusAnswer,
  UnreachableError,
} from "../../broker/contract/index.ts";
import type { Link } from "../../broker/link/link.ts";

export const TENANT = "default";
/** The pool's first start opens its stream: a second or two on a slow disk. */
const POOL_START_MS = 30_000;
/** All sandboxes are to be gone by then; what is not is said, and the provider's own backstop remains. */
const DRAIN_MS = 60_000;
const ANSWER_MS = 10_000;

export async function askPool<S extends v.GenericSchema<unknown, unknown>>(
  link: Link,
  verb: string,
  request: object,
  answer: S,
): Promise<v.InferOutput<S>> {
  const message = await link.request("pool", poolSubject(TENANT, verb), encode(request), {
    timeoutMs: ANSWER_MS,
  });
  return parseAnswer(answer, message.data);
}

/** Asks until the pool answers: nothing else tells that it has subscribed. Nobody listening is told at once, so this
 * costs one round trip each 10 ms while it starts. */
export async function untilPoolAnswers(link: Link): Promise<void> {
  const deadline = Date.now() + POOL_START_MS;
  for (;;) {
    try {
      await askPool(link, "status", {}, StatusAnswer);
      return;
    } catch (error) {
      if (!(error instanceof UnreachableError || error instanceof PoolUnavailableError)) throw error;
      if (Date.now() > deadline)
        throw new PoolUnavailableError("the pool did not start; see its log", { cause: error });
      await Bun.sleep(10);
    }
  }
}

/** Releases all that is there and waits for it; the number that remained. */
export async function drain(link: Link): Promise<number> {
  const deadline = Date.now() + DRAIN_MS;
  let remaining = Number.POSITIVE_INFINITY;
  while (Date.now() < deadline) {
    remaining = (await askPool(link, "drain", { release_all: true }, DrainAnswer)).remaining;
    if (remaining === 0) break;
    await Bun.sleep(50);
  }
  return remaining;
}
