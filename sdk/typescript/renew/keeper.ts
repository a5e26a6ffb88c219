// Renews runs: each at a third of its lease, so that two renewals may be lost.
import {
  ConnectionError,
  LeaseLostError,
  NotFoundError,
  PermissionDeniedError,
  SandmeshError,
} from "../../../broker/contract/index.ts";
import { after } from "../../../broker/link/after.ts";
import { ordersOf } from "../releases.ts";
import type { Settings } from "../settings.ts";
import { Caller } from "../wire/caller.ts";
import { openLink, SERVER_GONE_MS } from "../wire/open.ts";
import { DEAD_MAN_MS, type Loss, type ReleaseOrder } from "./protocol.ts";

/** When to renew next after a success: a third of the lease, a fifth of it earlier at random, so that the runs of
 * a burst spread out. `random` is 0 to 1. */
function nextRenewalMs(leaseMs: number, random: number): number {
  return (leaseMs / 3) * (1 - random / 5);
}

/** When to try again after a failure. */
function retryMs(leaseMs: number): number {
  return Math.min(1_000, leaseMs / 10);
}

/** The pool's word on the run. That the server refuses the credential says nothing of it: a file that is replaced late has
 * a good one again before the lease is over. */
function isRefusal(error: unknown): error is SandmeshError {
  if (error instanceof PermissionDeniedError) return error.reason !== "credential";
  return error instanceof NotFoundError || error instanceof LeaseLostError;
}

interface Kept {
  leaseMs: number;
  /** When the last renewal was sent that arrived, or may have; ms since the epoch. */
  renewedAt: number;
  clear: (() => void) | undefined;
}

export class Keeper {
  readonly #caller: Promise<Caller>;
  readonly #report: (message: Loss) => void;
  readonly #runs = new Map<string, Kept>();
  #connected: Caller | undefined;

  constructor(caller: Promise<Caller>, report: (message: Loss) => void) {
    this.#report = report;
    this.#caller = caller;
    // Without a listener its failure would end the thread.
    caller.then(
      (caller) => {
        this.#connected = caller;
      },
      () => undefined,
    );
  }

  /** Keeps a run alive from now on; again with another lease: from now on with that. */
  keep(run: string, leaseMs: number): void {
    const known = this.#runs.get(run);
    if (known?.leaseMs === leaseMs) return;
    known?.clear?.();
    const kept: Kept = { leaseMs, renewedAt: Date.now(), clear: undefined };
    this.#runs.set(run, kept);
    this.#schedule(run, kept, nextRenewalMs(leaseMs, Math.random()));
  }

  drop(run: string): void {
    this.#runs.get(run)?.clear?.();
    this.#runs.delete(run);
  }

  /** Releases runs and leases, each verified; resolves when all are answered or the time is up. */
  async release({ timeoutMs, ...holdings }: ReleaseOrder): Promise<void> {
    for (const run of holdings.runs) this.drop(run);
    const caller = await this.#caller;
    const orders = ordersOf(holdings);
    await Promise.allSettled(orders.map((order) => caller.pool("release", order, { timeoutMs })));
  }

  /** Renews nothing any more. */
  rest(): void {
    for (const run of [...this.#runs.keys()]) this.drop(run);
  }

  #schedule(run: string, kept: Kept, afterMs: number): void {
    if (this.#runs.get(run) !== kept) return;
    kept.clear = after(afterMs, () => void this.#renew(run, kept));
  }

  async #renew(run: string, kept: Kept): Promise<void> {
    const { leaseMs } = kept;
    const askedAt = Date.now();
    // It may arrive, whether or not an answer comes; what is sent while the server is away does not, before it is back.
    const caller = this.#connected;
    const away = caller === undefined || caller.link.awayMs > 0;
    try {
      if (caller === undefined) throw new ConnectionError("not connected yet");
      const timeoutMs = Math.min(5_000, leaseMs / 3);
      await caller.pool("renew", { run, lease_ms: leaseMs }, { timeoutMs, absentMs: 0 });
      kept.renewedAt = askedAt;
      this.#schedule(run, kept, nextRenewalMs(leaseMs, Math.random()));
    } catch (error) {
      // Whether that means a loss is the main thread's to say: it knows which sandboxes it had by `askedAt`.
      if (isRefusal(error)) this.#report({ type: "refused", run, askedAt, error: error.toWire() });
      else if (!away) kept.renewedAt = askedAt;
      else if (Date.now() - kept.renewedAt >= leaseMs + DEAD_MAN_MS)
        this.#report({ type: "lapsed", run, renewedAt: kept.renewedAt, leaseMs });
      this.#schedule(run, kept, retryMs(leaseMs));
    }
  }
}

/** A connection for renewals. The lease may be shorter than the time that the broker needs to come back: tried for as long as
 * it takes. */
export async function openPatiently(settings: Settings): Promise<Caller> {
  for (;;) {
    try {
      const how = { name: "renewals", timeoutMs: 30_000, goneAfterMs: SERVER_GONE_MS, patient: true };
      return new Caller(await openLink(settings, how));
    } catch (error) {
      if (!(error instanceof SandmeshError && error.retryable)) throw error;
    }
  }
}
