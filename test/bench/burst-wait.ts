// Waits of the burst: each says what it waits for and has an end, so that a burst that hangs tells where.

/** What `work` answers. Throws after `ms`, saying what was waited for; `state` tells how far it had come. */
export async function inTime<T>(
  what: string,
  ms: number,
  work: Promise<T>,
  state: () => string = () => "",
): Promise<T> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new Error(`gave up on ${what} after ${ms} ms ${state()}`)), ms);
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Asks each 100 ms until it is so. Throws as `inTime`. */
export async function untilTrue(what: string, ms: number, ask: () => Promise<boolean>): Promise<void> {
  for (const until = performance.now() + ms; !(await ask()); ) {
    if (performance.now() > until) throw new Error(`gave up on ${what} after ${ms} ms`);
    await Bun.sleep(100);
  }
}
