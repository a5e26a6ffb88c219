// What becomes of a question whose answer did not come: the one place that says whether asking again may help.
import { ConnectionError, DeadlineError, UnreachableError } from "../../../broker/contract/index.ts";

/** Reasons of a ConnectionError after which there is nobody to ask again. */
const FOR_GOOD = ["closed", "server_gone"];

/** Whether the question or its answer may only have been lost on the way. */
export function mayBeLost(error: unknown): boolean {
  if (error instanceof ConnectionError) return !FOR_GOOD.includes(error.reason ?? "");
  return error instanceof DeadlineError || error instanceof UnreachableError;
}
