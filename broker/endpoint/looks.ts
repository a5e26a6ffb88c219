// `hash`, `glob`, `search`, `list`, `remove` and the beginning of a `watch`: they may take long, and end where whoever asked takes
// that back, or is gone.
import { CanceledError } from "../contract/index.ts";
import type { Context, Reply } from "./context.ts";
import { tokenOf } from "./flow.ts";
import { Presence } from "./presence.ts";
import { STALL_MS } from "./stream-reader.ts";

interface Look {
  /** The name that the caller gave. */
  transfer: string;
  connection: string;
  presence: Presence;
  stop(why: string): void;
}

export class Looks {
  readonly #context: Context;
  readonly #open = new Set<Look>();

  constructor(context: Context) {
    this.#context = context;
  }

  /** What `work` answers; one without a name goes on to its end. */
  async run<A>(
    reply: Reply,
    transfer: string | undefined,
    work: (signal: AbortSignal) => Promise<A>,
  ): Promise<A> {
    const control = new AbortController();
    if (transfer === undefined) return await work(control.signal);
    const stop = (why: string) => control.abort(new CanceledError(why));
    const gone = () => stop("nothing was heard of who asked for it");
    const presence = new Presence(this.#context.deadlines, STALL_MS, gone);
    const look = { transfer, connection: connectionOf(reply.subject), presence, stop };
    this.#open.add(look);
    try {
      return await work(control.signal);
    } finally {
      presence.end();
      this.#open.delete(look);
    }
  }

  /** Whoever asks anything is there. */
  heard(reply: string): void {
    if (this.#open.size === 0) return;
    const connection = connectionOf(reply);
    for (const look of this.#open) if (look.connection === connection) look.presence.heard();
  }

  /** false where there is none of that name. */
  abort(transfer: string): boolean {
    const named = [...this.#open].filter((look) => look.transfer === transfer);
    for (const look of named) look.stop("taken back by who asked for it");
    return named.length > 0;
  }

  close(): void {
    for (const look of this.#open) look.stop("the sandbox ends");
  }
}

/** A reader's token is its connection and a number. */
function connectionOf(reply: string): string {
  const token = tokenOf(reply);
  return token.slice(0, token.lastIndexOf("."));
}
