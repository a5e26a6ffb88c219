// For tests: what a promise was rejected with, now or later.
import { SandmeshError } from "../../broker/contract/index.ts";

/** The SandmeshError of a promise that must fail; anything else fails the test. */
export async function errorOf(promise: Promise<unknown>): Promise<SandmeshError> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof SandmeshError) return error;
    throw error;
  }
  throw new Error("it did not fail");
}

/** What goes on beside the test and is waited for by the answer: its failure meanwhile is heard there, and nowhere else. A
 * promise that nobody has asked yet would fail by the runner's "Unhandled error", in the midst of what waits for another
 * reason, and hide that. */
export function beside<T>(work: Promise<T>): () => Promise<T> {
  work.catch(() => undefined);
  return () => work;
}
