// Which of the providers that can have a spec gets the next sandbox: by weight, past those that refused a short while ago.

/** A provider's share of what several could have. 0: a spare, taken only where no other can, in the order given. */
export type Weights = Readonly<Record<string, number>>;

export interface ChoiceState {
  /** What each is owed, in sandboxes times the sum of the weights. */
  readonly owed: Readonly<Record<string, number>>;
  /** Until when each is passed over, ms since the epoch. */
  readonly passedUntil: Readonly<Record<string, number>>;
}

export const NO_CHOICES: ChoiceState = { owed: {}, passedUntil: {} };

/** Chooses of `able` (in the order of the settings, at least one). The shares are kept exactly, not by chance: each pick
 * owes all their weight and takes the sum from the one that is owed most. How many live where plays no part: a cluster
 * whose sandboxes end at once would draw all others to itself. */
export function choose(
  able: readonly [string, ...string[]],
  weights: Weights,
  state: ChoiceState,
  now: number,
): { name: string; state: ChoiceState } {
  const willing = able.filter((name) => (state.passedUntil[name] ?? 0) <= now);
  // Where all are passed over one is asked all the same: its own error says more than ours could.
  const asked = willing.length === 0 ? able : willing;
  const sharing = asked.filter((name) => (weights[name] ?? 0) > 0);
  if (sharing.length < 2) return { name: sharing[0] ?? asked[0] ?? able[0], state };
  const owed: Record<string, number> = { ...state.owed };
  let sum = 0;
  let most = sharing[0] ?? able[0];
  for (const name of sharing) {
    const weight = weights[name] ?? 0;
    sum += weight;
    owed[name] = (owed[name] ?? 0) + weight;
    if ((owed[name] ?? 0) > (owed[most] ?? 0)) most = name;
  }
  owed[most] = (owed[most] ?? 0) - sum;
  return { name: most, state: { ...state, owed } };
}

/** Whether a failure speaks of the provider, and not of this one sandbox or its spec: no room, no answer, no rights. */
export function isRefusal({ code, reason }: { code: string; reason?: string | undefined }): boolean {
  if (code === "boot_failed") return reason === "unschedulable";
  if (code === "provider_failed") return reason !== "ended";
  return code === "quota_exceeded" || code === "permission_denied";
}

const REFUSED_AT_THE_DOOR = new Set(["unauthorized", "throttled", "no_owner"]);

/** Whether a create that failed so has surely made nothing: only then may another provider make it, since two daemons
 * must never come up for one sandbox. */
export function madeNothing({ code, reason }: { code: string; reason?: string | undefined }): boolean {
  if (code === "provider_failed") return reason !== undefined && REFUSED_AT_THE_DOOR.has(reason);
  return code === "quota_exceeded" || code === "permission_denied";
}

/** The state over time, of one pool. */
export class ProviderChoice {
  readonly #weights: Weights;
  readonly #passMs: number;
  readonly #tell: (provider: string, why: string) => void;
  #state = NO_CHOICES;

  /** `passMs`: how long one that refused is passed over. `tell` hears of each that was not passed over before. */
  constructor(weights: Weights, passMs: number, tell: (provider: string, why: string) => void) {
    this.#weights = weights;
    this.#passMs = passMs;
    this.#tell = tell;
  }

  pick(able: readonly [string, ...string[]], now: number): string {
    const { name, state } = choose(able, this.#weights, this.#state, now);
    this.#state = state;
    return name;
  }

  /** Another one for what was refused; undefined where none is left that is not passed over itself. */
  another(able: readonly string[], now: number): string | undefined {
    const [first, ...more] = able.filter((name) => (this.#state.passedUntil[name] ?? 0) <= now);
    return first === undefined ? undefined : this.pick([first, ...more], now);
  }

  passOver(provider: string, why: string, now: number): void {
    const { passedUntil } = this.#state;
    if ((passedUntil[provider] ?? 0) <= now) this.#tell(provider, why);
    this.#state = { ...this.#state, passedUntil: { ...passedUntil, [provider]: now + this.#passMs } };
  }
}
