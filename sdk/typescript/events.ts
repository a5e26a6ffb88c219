// What happens in the mesh, as the pool tells it.
import * as v from "valibot";
import {
  check,
  EVENTS,
  eventWildcard,
  Id,
  type PoolEvent,
  parseSubject,
  runEventSubject,
} from "../../broker/contract/index.ts";
import type { Message } from "../../broker/link/link.ts";
import { onAbort } from "../../broker/link/on-abort.ts";
import { given, nothingElse } from "./arguments.ts";
import { defined } from "./spec.ts";
import type { Caller } from "./wire/caller.ts";
import { poolEventOf } from "./wire/news.ts";
import { throwIfAborted } from "./wire/pause.ts";

export interface EventFilter {
  /** Of this run only. */
  run?: string;
  /** Of this sandbox only. */
  sandbox?: string;
  /** Of these kinds only. */
  what?: readonly PoolEvent["what"][];
  signal?: AbortSignal;
}

const Filter = v.object({ run: v.optional(Id), sandbox: v.optional(Id) });

/** A reader that is this far behind misses the oldest. */
const MAX_WAITING = 10_000;

/** Endless; leave the loop or abort. Throws ConnectionError where the server has been away for a minute. Events from before
 * the first step of the loop are not told. Events of sandboxes' own making are left out, since anyone inside may make them. */
export async function* events(caller: Caller, filter: EventFilter): AsyncGenerator<PoolEvent, void, void> {
  const waiting: PoolEvent[] = [];
  let wake: () => void = () => undefined;
  const take = (message: Message) => {
    const subject = parseSubject(message.subject);
    if (subject?.kind !== "event" || subject.scope === "sandbox") return;
    const event = poolEventOf(message.data);
    if (event === undefined || !matches(event, filter)) return;
    waiting.push(event);
    if (waiting.length > MAX_WAITING) waiting.shift();
    wake();
  };
  const { link } = caller;
  const { run, sandbox, what: kinds = EVENTS, signal, ...rest } = given(filter, "filter");
  nothingElse(rest);
  // No event would ever be another name's.
  check(Filter, defined({ run, sandbox }));
  const subjects =
    run === undefined
      ? [eventWildcard(link.tenant)]
      : kinds.map((what) => runEventSubject(link.tenant, run, what));
  const subscriptions = subjects.map((subject) => link.subscribe(subject, take));
  const stop = () => wake();
  const unhear = onAbort(signal, stop);
  const heed = link.onGone(stop);
  void link.closed.then(stop);
  try {
    for (;;) {
      throwIfAborted(signal);
      const event = waiting.shift();
      if (event !== undefined) yield event;
      else if (caller.unusable !== undefined) throw caller.unusable;
      else
        await new Promise<void>((go) => {
          wake = go;
        });
    }
  } finally {
    unhear();
    heed();
    for (const subscription of subscriptions) subscription.unsubscribe();
  }
}

function matches(event: PoolEvent, { run, sandbox, what }: EventFilter): boolean {
  return (
    (run === undefined || event.run === run) &&
    (sandbox === undefined || event.sandbox === sandbox) &&
    (what === undefined || what.includes(event.what))
  );
}
