// For tests: what a promise was rejected with.
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
