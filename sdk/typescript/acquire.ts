// How one sandbox is asked for: again and again under one id until it is there, and given back where nobody wants it
// any more.
import {
  AcquireTimeoutError,
  CanceledError,
  ConnectionError,
  DeadlineError,
  type Grant,
  LeaseLostError,
  NotFoundError,
  newUuidV7,
  type POOL_VERBS,
  PoolUnavailableError,
  type RequestOf,
  SandmeshError,
} from "../../broker/contract/index.ts";
import type { Caller } from "./wire/caller.ts";
import { mayBeLost } from "./wire/lost.ts";
import type { Pulse } from "./wire/pulse.ts";
import { orReconnect } from "./wire/reconnect.ts";

export type WireAcquire = RequestOf<(typeof POOL_VERBS)["acquire"]> & {
  id: string;
  run: string;
  timeout_ms: number;
};

/** The pool answers at the end of the time itself; only a lost answer is waited for longer. */
const SLACK_MS = 1_000;
/** Seldom, since ten thousand may wait in the queue; a reconnect asks again at once. */
const AGAIN_MS = 10_000;
/** A pool that restarts is back within this. */
const POOL_ABSENT_MS = 15_000;
/** Grants that came too late to be confirmed, after which it is given up. */
const TRIES = 3;

/** Resolves to a confirmed grant. Throws what the pool answers, AcquireTimeoutError, CanceledError. Whatever it
 * throws, nothing stays acquired. `open` has each id from before it is sent until the pool has nothing of it any more, or the
 * grant is taken by who asked for it. */
export async function acquire(
  caller: Caller,
  pulse: Pulse,
  request: WireAcquire,
  open: Set<string>,
  signal: AbortSignal | undefined,
  chosenId: boolean,
): Promise<Grant> {
  const giveUpAt = Date.now() + request.timeout_ms + SLACK_MS;
  for (let attempt = 1; ; attempt++) {
    const asked = attempt === 1 ? request : { ...request, id: newUuidV7() };
    open.add(asked.id);
    try {
      const grant = await ask(caller, pulse, asked, giveUpAt, signal);
      await confirm(caller, grant, giveUpAt, signal);
      return grant;
    } catch (error) {
      takeBack(caller, open, asked.id, error);
      if (error instanceof DeadlineError) throw timedOut(request.timeout_ms, error);
      const tookTooLong = error instanceof LateError;
      if (!tookTooLong) throw error;
      if (chosenId || attempt === TRIES || Date.now() > giveUpAt) throw error.cause;
    }
  }
}

/** The grant was taken back before it was confirmed, as when the event loop stood still meanwhile. */
class LateError extends Error {}

async function ask(
  caller: Caller,
  pulse: Pulse,
  request: WireAcquire,
  giveUpAt: number,
  signal: AbortSignal | undefined,
): Promise<Grant> {
  for (;;) {
    try {
      return await orReconnect(pulse, signal, (either) =>
        caller.pool("acquire", request, {
          timeoutMs: Math.max(1, giveUpAt - Date.now()),
          againAfterMs: AGAIN_MS,
          absentMs: POOL_ABSENT_MS,
          signal: either,
        }),
      );
    } catch (error) {
      // The same id again only tells the pool where to answer.
      if (!(error instanceof ConnectionError && mayBeLost(error)) || Date.now() > giveUpAt) throw error;
    }
  }
}

async function confirm(
  caller: Caller,
  grant: Grant,
  giveUpAt: number,
  signal: AbortSignal | undefined,
): Promise<void> {
  const { sandbox, generation } = grant;
  try {
    // Also of a grant that came at the last moment.
    const timeoutMs = Math.min(Math.max(5_000, grant.confirm_ms), Math.max(SLACK_MS, giveUpAt - Date.now()));
    const options = { timeoutMs, againAfterMs: 1_000, signal };
    await caller.pool("confirm", { sandbox, generation }, options);
  } catch (error) {
    if (error instanceof NotFoundError || error instanceof LeaseLostError) {
      throw new LateError("confirmed too late", { cause: error });
    }
    throw error;
  }
}

/** Not waited for here: what is in `open` yet when the connection closes, or the process ends, is released there. */
function takeBack(caller: Caller, open: Set<string>, lease: string, error: unknown): void {
  // Where nobody answers there is nobody to be waited for; nobody confirms it, so that the pool takes it back by itself.
  if (isSilence(error) || !mayBeLeft(error)) open.delete(lease);
  if (caller.closed !== undefined || !mayBeLeft(error)) return;
  caller.pool("release", { lease }, { timeoutMs: 60_000, absentMs: 60_000 }).then(
    () => open.delete(lease),
    () => undefined,
  );
}

/** Whether the pool may still be working on it, hold it for us, or be removing what has failed. */
function mayBeLeft(error: unknown): boolean {
  if (error instanceof LateError || error instanceof CanceledError || isSilence(error)) return true;
  return error instanceof SandmeshError && error.sandbox !== undefined;
}

function isSilence(error: unknown): boolean {
  return (
    error instanceof DeadlineError ||
    error instanceof ConnectionError ||
    error instanceof PoolUnavailableError
  );
}

function timedOut(timeoutMs: number, cause: DeadlineError): AcquireTimeoutError {
  return new AcquireTimeoutError(`no sandbox within ${timeoutMs} ms, and no word of the pool's`, { cause });
}
