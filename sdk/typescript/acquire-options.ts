// What a sandbox is acquired with, as a user writes it, and as the wire carries it.
import { DEFAULT_LEASE_MS, newUuidV7, POOL_VERBS } from "../../broker/contract/index.ts";
import type { WireAcquire } from "./acquire.ts";
import { checkRequest } from "./arguments.ts";
import { type SpecOptions, specOf } from "./spec.ts";
import { type Duration, milliseconds, timeLimit } from "./units.ts";

export interface AcquireOptions extends SpecOptions {
  /** Default: the connection's own run. */
  run?: string;
  /** How long to wait for it; default 5 minutes. */
  timeout?: Duration;
  /** Aborting takes the acquire back. */
  signal?: AbortSignal;
  /** How long the run lives on when this process is gone; 1 s to 24 h, default 60 s. Renewed at a third of it. */
  lease?: Duration;
  /** Ends it after this, whatever is renewed; default 24 h. */
  maxLife?: Duration;
  /** UUIDv7, which becomes the lease's name; the same one again answers the same sandbox. */
  id?: string;
}

export interface AcquireManyOptions extends Omit<AcquireOptions, "id"> {
  /** How many are enough; default all. */
  atLeast?: number;
}

const DEFAULT_TIMEOUT_MS = 300_000;

/** Throws InvalidRequestError that names the field. */
export function acquireRequest(
  options: Omit<AcquireOptions, "signal"> & { run: string },
): WireAcquire & { lease_ms: number } {
  const { run, timeout, lease, maxLife, id, ...spec } = options;
  const leaseMs = lease === undefined ? DEFAULT_LEASE_MS : milliseconds(lease, "lease");
  const request = {
    id: id ?? newUuidV7(),
    run,
    spec: specOf(spec),
    timeout_ms: timeout === undefined ? DEFAULT_TIMEOUT_MS : timeLimit(timeout, "timeout"),
    lease_ms: leaseMs,
    renews: true,
    ...(maxLife !== undefined && { max_life_ms: milliseconds(maxLife, "maxLife") }),
  };
  checkRequest(POOL_VERBS.acquire.request, request);
  return request;
}
