// What the pool tells of the sandboxes of a run.
import { check, decode, PoolEvent, runEventSubject } from "../../../broker/contract/index.ts";
import type { Link } from "../../../broker/link/link.ts";

const LOSSES = ["lost", "expired", "released", "failed"] as const;

/** Calls `tell` with each sandbox of the run that ends, and why. Returns what ends it. */
export function hearLosses(
  link: Link,
  run: string,
  tell: (sandbox: string, reason: string) => void,
): () => void {
  const subscriptions = LOSSES.map((what) =>
    link.subscribe(runEventSubject(link.tenant, run, what), ({ data }) => {
      const event = check(PoolEvent, decode(data));
      if (event.sandbox !== undefined) tell(event.sandbox, event.reason ?? event.what);
    }),
  );
  return () => {
    for (const subscription of subscriptions) subscription.unsubscribe();
  };
}
