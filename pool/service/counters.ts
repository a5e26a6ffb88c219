// What the pool has counted since its start: `status` tells the states, tests look at the rest.
import { STATES, type State } from "../../broker/contract/index.ts";

export interface Counters {
  /** Sandboxes in each state now. */
  states: Record<State, number>;
  acquires: number;
  granted: number;
  /** By the word that ended them (a closed list). */
  ended: Record<string, number>;
  /** Answers by error code (a closed list). */
  errors: Record<string, number>;
  removeFailures: number;
  orphansRemoved: number;
  refusedReplies: number;
}

/** Counts `word` once more in one of the closed lists. */
export function count(counts: Record<string, number>, word: string): void {
  counts[word] = (counts[word] ?? 0) + 1;
}

export function newCounters(): Counters {
  const states = Object.fromEntries(STATES.map((state) => [state, 0])) as Record<State, number>;
  return {
    states,
    acquires: 0,
    granted: 0,
    ended: {},
    errors: {},
    removeFailures: 0,
    orphansRemoved: 0,
    refusedReplies: 0,
  };
}
