// What becomes of a question whose answer did not come, or refuses it: the one place that says whether asking again may help,
// and whether the question may have started something.
import {
  ConnectionError,
  DeadlineError,
  type ErrorCode,
  fromWire,
  InvalidRequestError,
  PermissionDeniedError,
  SandmeshError,
  type Started,
  UnreachableError,
} from "../../../broker/contract/index.ts";

/** Reasons of a ConnectionError after which there is nobody to ask again. */
const FOR_GOOD = ["closed", "server_gone"];

/** Whether the question or its answer may only have been lost on the way. */
export function mayBeLost(error: unknown): boolean {
  if (error instanceof ConnectionError) return !FOR_GOOD.includes(error.reason ?? "");
  return error instanceof DeadlineError || error instanceof UnreachableError;
}

/** Whether bytes were refused for their offset: what is to stand before them is not there. */
export const refusesOffset = (error: unknown): boolean =>
  error instanceof InvalidRequestError && error.field === "offset";

const REFUSALS: ReadonlySet<string> = new Set<ErrorCode>([
  "invalid_request",
  "unknown_verb",
  "too_large",
  "conflict",
  "unsupported",
  "not_found",
  "lease_lost",
]);

/** Whether the question that was answered so has started nothing; what another one before it did is not known by that. */
export function startedNothing(error: unknown): boolean {
  // A credential that is refused, or may not hear the answer, says nothing of what was asked before.
  if (error instanceof PermissionDeniedError)
    return error.reason !== "credential" && error.reason !== "subscribe";
  return error instanceof SandmeshError && REFUSALS.has(error.code);
}

/** The same error, saying that of whether a command was started, whatever it says itself; undefined: nothing of it. */
export function saying(error: SandmeshError, started: Started | undefined, sandbox?: string): SandmeshError {
  const { started: _, ...wire } = error.toWire();
  const copy = fromWire({
    ...(sandbox !== undefined && { sandbox }),
    ...wire,
    ...(started !== undefined && { started }),
  });
  copy.stack = error.stack ?? "";
  if ("cause" in error) copy.cause = error.cause;
  return copy;
}
