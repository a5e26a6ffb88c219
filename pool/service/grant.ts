// The answer to an acquire, from the sandbox's record: the same whenever it is asked for.
import type { Grant } from "../../broker/contract/index.ts";
import type { SandboxRecord } from "../lifecycle/record.ts";

export function grantOf(record: SandboxRecord, confirmMs: number): Grant {
  const { sandbox, run, lease, generation, leaseMs, provider, requestedAt } = record;
  // A provider may answer its create after the daemon has spoken: then the daemon's word says when it was there.
  const ready = (record.readyAt ?? requestedAt) - requestedAt;
  const enrolled = record.enrolledAt === undefined ? ready : record.enrolledAt - requestedAt;
  const created = record.createdAt === undefined ? enrolled : record.createdAt - requestedAt;
  return {
    sandbox,
    run,
    lease,
    generation,
    incarnation: record.incarnation ?? "",
    lease_ms: leaseMs,
    confirm_ms: confirmMs,
    provider,
    timeline: {
      queued_ms: record.intendedAt - requestedAt,
      created_ms: Math.min(created, enrolled),
      enrolled_ms: enrolled,
      ready_ms: ready,
    },
    warnings: record.warnings ?? [],
  };
}
