// A timer that waits for as long as it is told to. The runtime's own count 31 bits of milliseconds (24.8 days), and what
// is longer they end at once.

export const MAX_TIMER_MS = 2 ** 31 - 1;

/** Calls `run` once, in `ms`. Returns what takes it back. `maxMs`: what one of the runtime's timers waits at most. */
export function after(ms: number, run: () => void, maxMs = MAX_TIMER_MS): () => void {
  const dueMs = performance.now() + ms;
  let timer: ReturnType<typeof setTimeout>;
  const wait = (leftMs: number): void => {
    timer =
      leftMs <= maxMs
        ? setTimeout(run, leftMs)
        : setTimeout(() => wait(Math.max(0, dueMs - performance.now())), maxMs);
  };
  wait(ms);
  return () => clearTimeout(timer);
}
