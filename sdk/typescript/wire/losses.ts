// What becomes of sandboxes that are held by their id alone: of each run its events are heard once, whoever waits for how many
// of it, and after an absence of the connection the pool is asked once.
import { SandmeshError } from "../../../broker/contract/index.ts";
import type { Caller } from "./caller.ts";
import { endedOf } from "./listing.ts";
import { hearLosses } from "./news.ts";

/** After a restart of the server all clients are back at once. */
export const LOOK_WITHIN_MS = 1_000;

interface Heard {
  tells: Map<string, Set<(reason: string) => void>>;
  /** Why those ended that did since it is heard: the word of it may come before who asked for it knows its run. */
  ended: Map<string, string>;
  /** By `performance.now()`. */
  since: number;
  unhear: () => void;
}

export class Losses {
  readonly #caller: Caller;
  readonly #runs = new Map<string, Heard>();
  #lookTimer: NodeJS.Timeout | undefined;

  constructor(caller: Caller) {
    this.#caller = caller;
    caller.link.onStatus((connected) => connected && this.#lookSoon());
  }

  /** Calls `tell` when the sandbox ends. `askedAt`: when the pool was asked, by `performance.now()`, that said it was there;
   * `unsure`: that was before the run was heard, so that it may have ended between the two. */
  follow(
    run: string,
    sandbox: string,
    askedAt: number,
    tell: (reason: string) => void,
  ): { unsure: boolean; stop: () => void } {
    const heard = this.#runs.get(run) ?? this.#hear(run);
    const ended = heard.ended.get(sandbox);
    if (ended !== undefined) tell(ended);
    const tells = heard.tells.get(sandbox) ?? new Set();
    heard.tells.set(sandbox, tells.add(tell));
    return { unsure: askedAt <= heard.since, stop: () => this.#stop(run, heard, sandbox, tell) };
  }

  /** Nothing is asked any more. */
  close(): void {
    clearTimeout(this.#lookTimer);
  }

  #hear(run: string): Heard {
    const since = performance.now();
    const heard: Heard = { tells: new Map(), ended: new Map(), since, unhear: () => undefined };
    const tell = (sandbox: string, reason: string) => {
      heard.ended.set(sandbox, reason);
      tellAll(heard, sandbox, reason);
    };
    heard.unhear = hearLosses(this.#caller.news, run, tell, () => this.#lookSoon());
    this.#runs.set(run, heard);
    return heard;
  }

  #stop(run: string, heard: Heard, sandbox: string, tell: (reason: string) => void): void {
    const tells = heard.tells.get(sandbox);
    tells?.delete(tell);
    if (tells?.size === 0) heard.tells.delete(sandbox);
    if (heard.tells.size > 0 || this.#runs.get(run) !== heard) return;
    this.#runs.delete(run);
    if (this.#caller.closed === undefined) heard.unhear();
  }

  #lookSoon(): void {
    clearTimeout(this.#lookTimer);
    if (this.#runs.size === 0) return;
    const look = () => {
      for (const [run, heard] of this.#runs) void this.#look(run, heard);
    };
    this.#lookTimer = setTimeout(look, Math.random() * LOOK_WITHIN_MS);
  }

  /** Where no answer comes nothing is known, and the next silence finds out. */
  async #look(run: string, heard: Heard): Promise<void> {
    try {
      for (const [sandbox, reason] of await endedOf(this.#caller, run, [...heard.tells.keys()]))
        tellAll(heard, sandbox, reason);
    } catch (error) {
      if (!(error instanceof SandmeshError)) throw error;
    }
  }
}

function tellAll({ tells }: Heard, sandbox: string, reason: string): void {
  for (const tell of [...(tells.get(sandbox) ?? [])]) tell(reason);
}
