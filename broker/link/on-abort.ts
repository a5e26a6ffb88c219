// One listener a signal, however many wait with it: Node warns of a leak at the eleventh (MaxListenersExceededWarning).

interface Heard {
  readonly tell: Set<() => void>;
  readonly abort: () => void;
}

const heard = new WeakMap<AbortSignal, Heard>();

/** Calls `tell` when `signal` aborts, and not where it has already. Returns what takes it back. */
export function onAbort(signal: AbortSignal | undefined, tell: () => void): () => void {
  if (signal === undefined || signal.aborted) return () => undefined;
  const one = heard.get(signal) ?? hear(signal);
  one.tell.add(tell);
  return () => {
    if (one.tell.delete(tell) && one.tell.size === 0) unhear(signal, one);
  };
}

/** As `onAbort`, and at once where it has already. */
export function whenAborted(signal: AbortSignal | undefined, tell: () => void): () => void {
  if (signal?.aborted === true) tell();
  return onAbort(signal, tell);
}

function hear(signal: AbortSignal): Heard {
  const tell = new Set<() => void>();
  const abort = () => {
    unhear(signal, one);
    for (const each of tell) each();
  };
  const one = { tell, abort };
  heard.set(signal, one);
  signal.addEventListener("abort", abort);
  return one;
}

function unhear(signal: AbortSignal, one: Heard): void {
  signal.removeEventListener("abort", one.abort);
  if (heard.get(signal) === one) heard.delete(signal);
}
