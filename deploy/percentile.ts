// One percentile for all figures that are shown.

/** What `values × share` may be above a whole number by floating point: 100 × 0.55 is 55.00000000000001. */
const ROUNDING = 1e-9;

/** By nearest rank: the least of the values that at least `share` (0 to 1) of them do not exceed; NaN of none. */
export function percentile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  const rank = Math.max(1, Math.ceil(sorted.length * share - ROUNDING));
  return sorted[rank - 1] ?? Number.NaN;
}
