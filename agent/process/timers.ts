// When the program's next timer is due: the runtime does not tell.

/** Timers that are set from now on. */
export interface Timers {
  /** Milliseconds until the next is due, 0 where one is; Infinity where none is set. */
  nextInMs(): number;
}

type Setters = Pick<
  typeof globalThis,
  "setTimeout" | "setInterval" | "setImmediate" | "clearTimeout" | "clearInterval" | "clearImmediate"
>;

/** Follows timers by standing in front of the functions `of` that set them. What the runtime sets within itself is not
 * seen. */
export function followTimers(of: Setters = globalThis, now: () => number = () => performance.now()): Timers {
  const due = new Map<unknown, number>();
  const { setTimeout, setInterval, setImmediate, clearTimeout, clearInterval, clearImmediate } = of;
  type Run = (...given: unknown[]) => void;
  const later = (run: Run, ms?: number, ...given: unknown[]) => {
    const timer = setTimeout(() => {
      due.delete(timer);
      run(...given);
    }, ms);
    due.set(timer, now() + (ms ?? 0));
    return timer;
  };
  const every = (run: Run, ms?: number, ...given: unknown[]) => {
    const next = () => due.set(timer, now() + (ms ?? 0));
    const timer = setInterval(() => {
      next();
      run(...given);
    }, ms);
    next();
    return timer;
  };
  const soon = (run: Run, ...given: unknown[]) => {
    const immediate = setImmediate(() => {
      due.delete(immediate);
      run(...given);
    });
    due.set(immediate, 0);
    return immediate;
  };
  const without =
    <Timer>(clear: (timer: Timer) => void) =>
    (timer: Timer) => {
      due.delete(timer);
      clear(timer);
    };
  Object.assign(of, {
    setTimeout: later,
    setInterval: every,
    setImmediate: soon,
    clearTimeout: without(clearTimeout),
    clearInterval: without(clearInterval),
    clearImmediate: without(clearImmediate),
  });
  return { nextInMs: () => Math.max(0, Math.min(...due.values()) - now()) };
}
