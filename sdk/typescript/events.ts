// What happens in the mesh, as the pool tells it.
import * as v from "valibot";
import { check, EVENTS, Id, type PoolEvent, type SandmeshError } from "../../broker/contract/index.ts";
import { onAbort } from "../../broker/link/on-abort.ts";
import { given, invalid, nothingElse } from "./arguments.ts";
import { defined } from "./spec.ts";
import type { Caller } from "./wire/caller.ts";
import { throwIfAborted } from "./wire/pause.ts";

export interface EventFilter {
  /** Of this run only. */
  run?: string;
  /** Of this sandbox only. */
  sandbox?: string;
  /** Of these kinds only. */
  what?: readonly PoolEvent["what"][] | ReadonlySet<PoolEvent["what"]>;
  signal?: AbortSignal;
}

/** Not the pool's: events from before this one may be missing, since the connection was lost and is back, or since their
 * reader was too far behind. Who waits for something looks again, with `list`. */
export interface MissedEvents {
  what: "missed";
  /** When that was noticed, by this machine's clock. */
  at: string;
  run?: undefined;
  sandbox?: undefined;
  lease?: undefined;
  reason?: undefined;
}

export type MeshEvent = PoolEvent | MissedEvents;

const Filter = v.object({ run: v.optional(Id), sandbox: v.optional(Id) });

/** A reader that is this far behind misses the older half, and is told so in its place: not at each event from then on. */
const MAX_WAITING = 10_000;

/** Endless; leave the loop or abort. Throws ConnectionError where the server has been away for a minute. Events from before
 * the first step of the loop are not told. Events of sandboxes' own making are left out, since anyone inside may make them.
 * Throws PermissionDeniedError (reason `subscribe`) where the server refuses to tell of them.
 * MissedEvents come whatever the filter is. */
export async function* events(caller: Caller, filter: EventFilter): AsyncGenerator<MeshEvent, void, void> {
  const waiting: MeshEvent[] = [];
  let wake: () => void = () => undefined;
  const add = (event: MeshEvent) => {
    waiting.push(event);
    if (waiting.length > MAX_WAITING) waiting.splice(0, MAX_WAITING / 2, missed());
    wake();
  };
  let refusal: SandmeshError | undefined;
  const tell = (event: PoolEvent) => {
    if (!kinds.has(event.what)) return;
    if ((run === undefined || event.run === run) && (sandbox === undefined || event.sandbox === sandbox))
      add(event);
  };
  const refused = (error: SandmeshError) => {
    refusal = error;
    wake();
  };
  const { link } = caller;
  const { run, sandbox, what, signal, ...rest } = given(filter, "filter");
  nothingElse(rest);
  const kinds = kindsOf(what);
  // No event would ever be another name's.
  check(Filter, defined({ run, sandbox }));
  const unhearEvents = caller.news.events.hear(run, { tell, refused });
  const stop = () => wake();
  const unhear = onAbort(signal, stop);
  const heed = link.onGone(stop);
  const heedReturn = link.onStatus((connected) => {
    if (connected && waiting.at(-1)?.what !== "missed") add(missed());
  });
  void link.closed.then(stop);
  try {
    for (;;) {
      throwIfAborted(signal);
      const event = waiting.shift();
      if (event !== undefined) yield event;
      else if (refusal !== undefined) throw refusal;
      else if (caller.unusable !== undefined) throw caller.unusable;
      else
        await new Promise<void>((go) => {
          wake = go;
        });
    }
  } finally {
    unhear();
    heed();
    heedReturn();
    unhearEvents();
  }
}

const missed = (): MissedEvents => ({ what: "missed", at: new Date().toISOString() });

/** No event would ever be of another kind, nor of none. */
function kindsOf(what: unknown): ReadonlySet<PoolEvent["what"]> {
  if (what === undefined) return new Set(EVENTS);
  const kinds = Array.isArray(what) || what instanceof Set ? new Set<unknown>(what) : undefined;
  const known = EVENTS.filter((kind) => kinds?.has(kind));
  if (kinds === undefined || known.length === 0 || known.length !== kinds.size)
    throw invalid("what", `must be a list or set of some of ${EVENTS.join(", ")}`);
  return new Set(known);
}
