// What the pool tells of the sandboxes of a run.
import {
  check,
  decode,
  InvalidRequestError,
  PoolEvent,
  runEventSubject,
} from "../../../broker/contract/index.ts";
import type { Link } from "../../../broker/link/link.ts";

const LOSSES = ["lost", "expired", "released", "failed"] as const;

/** Undefined for one that this version does not know, a newer pool's: what it is about is found out by asking. */
export function poolEventOf(data: Uint8Array): PoolEvent | undefined {
  try {
    return check(PoolEvent, decode(data));
  } catch (error) {
    if (error instanceof InvalidRequestError) return undefined;
    throw error;
  }
}

/** Calls `tell` with each sandbox of the run that ends, and why. Returns what ends it. */
export function hearLosses(
  link: Link,
  run: string,
  tell: (sandbox: string, reason: string) => void,
): () => void {
  const subscriptions = LOSSES.map((what) =>
    link.subscribe(runEventSubject(link.tenant, run, what), ({ data }) => {
      const event = poolEventOf(data);
      if (event?.sandbox !== undefined) tell(event.sandbox, event.reason ?? event.what);
    }),
  );
  return () => {
    for (const subscription of subscriptions) subscription.unsubscribe();
  };
}
