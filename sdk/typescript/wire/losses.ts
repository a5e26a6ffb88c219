// What becomes of sandboxes that are held by their id alone: of each run its events are heard once, whoever waits for how many
// of it, and after an absence of the connection the pool is asked once.
import type { Caller } from "./caller.ts";
import { hearLosses } from "./news.ts";

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

  constructor(caller: Caller) {
    this.#caller = caller;
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

  /** Nothing is heard or asked any more. */
  close(): void {
    for (const { unhear } of this.#runs.values()) unhear();
    this.#runs.clear();
  }

  #hear(run: string): Heard {
    const since = performance.now();
    const tells: Heard["tells"] = new Map();
    const ended: Heard["ended"] = new Map();
    const tellAll = (sandbox: string, reason: string) => {
      ended.set(sandbox, reason);
      for (const tell of [...(tells.get(sandbox) ?? [])]) tell(reason);
    };
    const unhear = hearLosses(this.#caller, run, tellAll, () => [...tells.keys()]);
    const heard = { tells, ended, since, unhear };
    this.#runs.set(run, heard);
    return heard;
  }

  #stop(run: string, heard: Heard, sandbox: string, tell: (reason: string) => void): void {
    const tells = heard.tells.get(sandbox);
    tells?.delete(tell);
    if (tells?.size === 0) heard.tells.delete(sandbox);
    if (heard.tells.size > 0 || this.#runs.get(run) !== heard) return;
    this.#runs.delete(run);
    heard.unhear();
  }
}
