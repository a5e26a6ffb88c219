// What the pool tells of the sandboxes of a run.
import {
  type EVENTS,
  eventWildcard,
  runEventSubject,
  runEventWildcard,
  SandmeshError,
} from "../../../broker/contract/index.ts";
import type { Link } from "../../../broker/link/link.ts";
import type { Caller } from "./caller.ts";
import { EventHub } from "./event-hub.ts";
import { endedOf } from "./listing.ts";

const LOSSES = [
  "lost",
  "expired",
  "released",
  "failed",
] as const satisfies readonly (typeof EVENTS)[number][];
/** After a restart of the server all clients are back at once. */
const LOOK_WITHIN_MS = 1_000;
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

/** Calls `tell` with each sandbox of the run that ends, and why. Where that may not have been heard (the connection was lost and
 * is back; or the server refuses to tell so, then each 5 s) the pool is asked, within a second, which of `waiting` are not there
 * any more. Returns what ends it. Throws ConnectionError (closed). */
export function hearLosses(
  caller: Caller,
  run: string,
  tell: (sandbox: string, reason: string) => void,
  waiting: () => readonly string[],
): () => void {
  let ended = false;
  let soon: NodeJS.Timeout | undefined;
  let again: NodeJS.Timeout | undefined;
  const lookSoon = () => {
    clearTimeout(soon);
    soon = setTimeout(() => void look(), Math.random() * LOOK_WITHIN_MS);
  };
  // What comes to be waited for while the pool is asked may not stand in its answer.
  const look = async () => {
    const before = waiting();
    if (before.length === 0) return;
    try {
      for (const [sandbox, reason] of await endedOf(caller, run, before)) if (!ended) tell(sandbox, reason);
    } catch (error) {
      // Where no answer comes nothing is known, and the next call to the sandbox, or its silence, finds out.
      if (!(error instanceof SandmeshError)) throw error;
    }
  };
  const hear = () =>
    caller.news.losses.hear(run, {
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
      lookSoon();
    } catch (error) {
      if (!(error instanceof SandmeshError)) throw error; // closed meanwhile
    }
  };
  let unhear = hear();
  const unheed = caller.link.onStatus((connected) => connected && lookSoon());
  return () => {
    ended = true;
    clearTimeout(soon);
    clearTimeout(again);
    unheed();
    unhear();
  };
}
