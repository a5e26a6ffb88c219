// Who on one connection hears of which run. A connection may have 64 subscriptions (broker/server/permissions.ts), and may be
// told of any number of runs: few have subscriptions of their own, the others share one for the whole tenant.
import {
  check,
  decode,
  InvalidRequestError,
  PoolEvent,
  parseSubject,
  type SandmeshError,
} from "../../../broker/contract/index.ts";
import type { Link, Message, Subscription } from "../../../broker/link/link.ts";

export interface Listener {
  tell(event: PoolEvent): void;
  /** The server refuses the subscription: this one is told nothing any more. */
  refused(error: SandmeshError): void;
}

/** Runs with subscriptions of their own. With four subjects each for losses, one for events, the same once more for the whole
 * tenant, and the answers' one, a connection has at most 8 * 4 + 4 + 8 * 1 + 1 + 1 = 46. */
export const MAX_NARROW = 8;

/** Undefined for one that this version does not know, a newer pool's: what it is about is found out by asking. */
function poolEventOf(data: Uint8Array): PoolEvent | undefined {
  try {
    return check(PoolEvent, decode(data));
  } catch (error) {
    if (error instanceof InvalidRequestError) return undefined;
    throw error;
  }
}

/** By run; undefined: of them all, and of what is of none. */
type Listeners = Map<string | undefined, Set<Listener>>;

/** Subscriptions that end with the last one that listens to them. */
class Feed {
  readonly #listeners: Listeners = new Map();
  readonly #subscriptions: Subscription[];
  readonly #ended: () => void;

  constructor(link: Link, subjects: readonly string[], ended: () => void) {
    this.#ended = ended;
    const refused = (error: SandmeshError) => this.#refused(error);
    this.#subscriptions = subjects.map((subject) =>
      link.subscribe(subject, (message) => this.#take(message), { refused }),
    );
  }

  has(run: string | undefined): boolean {
    return this.#listeners.has(run);
  }

  add(run: string | undefined, listener: Listener): () => void {
    const ofRun = this.#listeners.get(run) ?? new Set();
    this.#listeners.set(run, ofRun.add(listener));
    return () => {
      ofRun.delete(listener);
      if (ofRun.size > 0 || this.#listeners.get(run) !== ofRun) return;
      this.#listeners.delete(run);
      if (this.#listeners.size === 0) this.#end();
    };
  }

  #take({ subject, data }: Message): void {
    const parsed = parseSubject(subject);
    // Sandboxes' own: anyone inside may make these.
    if (parsed?.kind !== "event" || parsed.scope === "sandbox") return;
    const ofRun = parsed.scope === "run" ? this.#listeners.get(parsed.of) : undefined;
    const ofAll = this.#listeners.get(undefined);
    if (ofRun === undefined && ofAll === undefined) return;
    const event = poolEventOf(data);
    if (event !== undefined)
      for (const listener of [...(ofRun ?? []), ...(ofAll ?? [])]) listener.tell(event);
  }

  #refused(error: SandmeshError): void {
    const told = [...this.#listeners.values()].flatMap((ofRun) => [...ofRun]);
    this.#listeners.clear();
    this.#end();
    for (const listener of told) listener.refused(error);
  }

  #end(): void {
    for (const subscription of this.#subscriptions) subscription.unsubscribe();
    this.#ended();
  }
}

export class EventHub {
  readonly #link: Link;
  readonly #subjects: (run: string | undefined) => readonly string[];
  readonly #narrow = new Map<string, Feed>();
  #wide: Feed | undefined;

  /** `subjects`: what is subscribed for a run, or for the whole tenant. */
  constructor(link: Link, subjects: (run: string | undefined) => readonly string[]) {
    this.#link = link;
    this.#subjects = subjects;
  }

  /** Tells `listener` what happens from now on, each event once; subscribed in front of all that is asked later. Undefined:
   * of all runs. Returns what ends it. Throws ConnectionError (closed). */
  hear(run: string | undefined, listener: Listener): () => void {
    return this.#feedOf(run).add(run, listener);
  }

  /** Whoever hears of a run hears of it by the same feed, so that nothing is told twice, and nothing is left out while one
   * changes from one feed to another: none does. */
  #feedOf(run: string | undefined): Feed {
    const own = run === undefined ? undefined : this.#narrow.get(run);
    if (own !== undefined) return own;
    if (run === undefined || this.#wide?.has(run) === true || this.#narrow.size >= MAX_NARROW) {
      this.#wide ??= new Feed(this.#link, this.#subjects(undefined), () => {
        this.#wide = undefined;
      });
      return this.#wide;
    }
    const feed = new Feed(this.#link, this.#subjects(run), () => this.#narrow.delete(run));
    this.#narrow.set(run, feed);
    return feed;
  }
}
