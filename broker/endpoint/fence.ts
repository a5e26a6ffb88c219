// Whether a request is still from the one whose sandbox this is. Pure.
import { LeaseLostError, UnknownCommandError } from "../contract/index.ts";

export interface Fenced {
  lease?: string | undefined;
  generation?: number | undefined;
  incarnation?: string | undefined;
  /** Of a command, where the request is about one. */
  id?: string | undefined;
}

export interface Tenure {
  generation: number;
  lease: string | undefined;
  incarnation: string;
}

/** `wait`: the pool's word of this grant has not arrived yet; on a cluster of servers it may come after the caller's
 * first command. */
export type Verdict = "pass" | "wait" | LeaseLostError | UnknownCommandError;

/** `mayHaveRun`: the request begins or reads a command by its id, which another life of the daemon may have run. */
export function judge(request: Fenced, tenure: Tenure, sandbox: string, mayHaveRun: boolean): Verdict {
  const { lease, generation, incarnation, id } = request;
  if (incarnation !== undefined && incarnation !== tenure.incarnation) {
    if (mayHaveRun && id !== undefined) {
      return new UnknownCommandError("the daemon is another one than the request is for; it may have run", {
        sandbox,
        started: "unknown",
      });
    }
    return lost("the daemon was replaced", sandbox);
  }
  if (generation !== undefined) {
    if (generation > tenure.generation) return "wait";
    if (generation < tenure.generation) return lost("the sandbox was granted anew since", sandbox);
  }
  if (lease !== undefined && lease !== tenure.lease) {
    if (tenure.lease === undefined) return "wait";
    return lost("the sandbox belongs to another lease", sandbox);
  }
  return "pass";
}

export function lost(why: string, sandbox: string): LeaseLostError {
  return new LeaseLostError(`${why}; the request did nothing`, { sandbox, started: "no" });
}
