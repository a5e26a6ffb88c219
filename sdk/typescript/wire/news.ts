// What the pool tells of the sandboxes of a run.
import {
  type EVENTS,
  eventWildcard,
  runEventSubject,
  runEventWildcard,
  SandmeshError,
} from "../../../broker/contract/index.ts";
import type { Link } from "../../../broker/link/link.ts";
import { EventHub } from "./event-hub.ts";

const LOSSES = [
  "lost",
  "expired",
  "released",
  "failed",
] as const satisfies readonly (typeof EVENTS)[number][];
/** Where the server refuses to tell of them, it is asked anew, and the pool what is still there, after this. */
const AGAIN_MS = 5_000;

/** One for each connection. */
export class News {
  readonly losses: EventHub;
  readonly events: EventHub;

  constructor(link: Link) {
    const { tenant } = link;
    this.losses = new EventHub(link, (run) =>
      LOSSES.map((what) =>
        run === undefined ? runEventWildcard(tenant, "*", what) : runEventSubject(tenant, run, what),
      ),
    );
    this.events = new EventHub(link, (run) => [
      run === undefined ? eventWildcard(tenant) : runEventWildcard(tenant, run, "*"),
    ]);
  }
}

/** Calls `tell` with each sandbox of the run that ends, and why; `look`, where the server refuses to tell so, every 5 s:
 * then they are to be asked for. Returns what ends it. Throws ConnectionError (closed). */
export function hearLosses(
  { losses }: News,
  run: string,
  tell: (sandbox: string, reason: string) => void,
  look: () => void,
): () => void {
  let again: NodeJS.Timeout | undefined;
  const hear = () =>
    losses.hear(run, {
      tell: (event) => {
        if (event.sandbox !== undefined) tell(event.sandbox, event.reason ?? event.what);
      },
      refused: () => {
        again = setTimeout(retry, AGAIN_MS);
        again.unref();
      },
    });
  const retry = () => {
    try {
      unhear = hear();
      look();
    } catch (error) {
      if (!(error instanceof SandmeshError)) throw error; // closed meanwhile
    }
  };
  let unhear = hear();
  return () => {
    clearTimeout(again);
    unhear();
  };
}
