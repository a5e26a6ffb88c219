// A pool's start: loads the records, lists what the providers have, and feeds the difference to the state machine.

import type { SandboxRecord } from "../lifecycle/record.ts";
import type { Listed } from "../provider/provider.ts";
import type { Core } from "./core.ts";
import type { Reconciler } from "./reconcile.ts";
import type { Runs } from "./runs.ts";
import type { Sandboxes } from "./sandboxes.ts";

/** Resolves when all that was known is taken up again. Throws what the store throws, and a SandmeshError where
 * none of the providers can be listed. What one of several has, that cannot be reached, is neither taken for lost nor
 * for there: the comparison after its return tells. */
export async function recover(
  core: Core,
  sandboxes: Sandboxes,
  runs: Runs,
  reconciler: Reconciler,
): Promise<{ draining: boolean }> {
  const { sandboxes: records, runs: runRecords, draining } = await core.store.load();
  const listed = new Map<string, Map<string, Listed>>();
  const providers = [...core.providers.values()];
  const lists = await Promise.allSettled(providers.map((provider) => reconciler.list(provider)));
  const failure = lists.find((list) => list.status === "rejected");
  if (failure !== undefined && lists.every((list) => list.status === "rejected")) throw failure.reason;
  for (const [i, { name }] of providers.entries()) {
    const list = lists[i];
    if (list?.status === "fulfilled")
      listed.set(name, new Map(list.value.map((each) => [each.sandbox, each])));
  }
  for (const run of runRecords) runs.recover(run);
  for (const record of records) takeUp(core, sandboxes, record, listed.get(record.provider));
  for (const provider of providers)
    await reconciler.removeOrphans(provider, [...(listed.get(provider.name)?.values() ?? [])]);
  if (records.length > 0) core.log.info({ sandboxes: records.length, runs: runRecords.length }, "recovered");
  return { draining };
}

function takeUp(
  core: Core,
  sandboxes: Sandboxes,
  record: SandboxRecord,
  listed: Map<string, Listed> | undefined,
): void {
  const live = sandboxes.add(record, []);
  if (listed === undefined && core.providers.has(record.provider)) {
    sandboxes.apply(live, { type: "recovered", listed: "unknown" });
    return;
  }
  // Of a provider that is not configured any more: it can neither be found nor removed, and must not be forgotten.
  if (listed === undefined) {
    core.log.error({ sandbox: record.sandbox, provider: record.provider }, "its provider is not configured");
    return;
  }
  const there = listed.get(record.sandbox);
  // Nothing of it ran, which the pool before did not live to see to: as if it were not there.
  const found = there?.phase === "unfinished" ? undefined : there;
  const failed = found?.phase === "failed" ? (found.reason ?? "it failed") : undefined;
  sandboxes.apply(live, {
    type: "recovered",
    listed: found === undefined ? undefined : { uid: found.uid, failed },
  });
}
