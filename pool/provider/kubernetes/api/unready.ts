// Refusals that say nothing of the request. An API server that has just started answers before it has read what it decides
// by: for some seconds (as long as its etcd takes) its roles allow nothing to anybody, and its admission is "not yet ready".
// It is the same server that says so, with the same status and reason, of what nobody may.
import * as v from "valibot";

/** Since the first refusal with no answer of the other kind between: what is refused for longer is refused. */
export const UNREADY_MS = 20_000;

const Refusal = v.object({ message: v.string() });
/** Words of the authorizer, RBAC or another. */
const NO_RIGHT = /: User ".*" cannot \S+ resource /;
/** Words of admission plugins: their informers have not synced; the namespace's controller has not made its service account
 * yet; the quota's has not counted yet. */
const NOT_YET = /not yet ready to handle request|error looking up service account|status unknown for quota/;

export class Unready {
  readonly #now: () => number;
  /** What has been allowed once, and is not expected to be forbidden. */
  readonly #allowed = new Set<string>();
  /** By right: since when it is refused. */
  readonly #refusedSince = new Map<string, number>();

  /** `now`: ms, that never go back. */
  constructor(now = () => performance.now()) {
    this.#now = now;
  }

  /** Whether this answer to a request that needs `right` may be another one in a moment. */
  mayPass(right: string, status: number, body: unknown): boolean {
    if (status !== 403 || !this.#isUnready(right, body)) {
      if (status < 300) this.#allowed.add(right);
      // Whatever else is answered, it was allowed.
      this.#refusedSince.delete(right);
      return false;
    }
    const since = this.#refusedSince.get(right) ?? this.#now();
    this.#refusedSince.set(right, since);
    return this.#now() - since < UNREADY_MS;
  }

  #isUnready(right: string, body: unknown): boolean {
    const refusal = v.safeParse(Refusal, body);
    if (!refusal.success) return false;
    const { message } = refusal.output;
    return NOT_YET.test(message) || (this.#allowed.has(right) && NO_RIGHT.test(message));
  }
}
