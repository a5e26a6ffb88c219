// The pool's list.
import type { SandboxView, State } from "../../../broker/contract/index.ts";
import { defined } from "../spec.ts";
import type { Caller } from "./caller.ts";

/** States from which no sandbox comes back. */
const ENDED: ReadonlySet<State> = new Set<State>(["releasing", "gone", "lost", "failed"]);

export const isLive = ({ state }: SandboxView): boolean => !ENDED.has(state);

/** Those of `sandboxes`, all of that run, that are not there any more, and why. Throws as `Caller.pool`. */
export async function endedOf(
  caller: Caller,
  run: string,
  sandboxes: readonly string[],
): Promise<[sandbox: string, reason: string][]> {
  const listed = new Map((await listAll(caller, { run })).map((view) => [view.sandbox, view]));
  return sandboxes.flatMap((sandbox): [string, string][] => {
    const view = listed.get(sandbox);
    return view !== undefined && isLive(view) ? [] : [[sandbox, view?.reason ?? view?.state ?? "gone"]];
  });
}

/** The tenant's sandboxes, or a run's, by id; page by page. Throws as `Caller.pool`. */
export async function listAll(
  caller: Caller,
  { run, signal }: { run: string | undefined; signal?: AbortSignal | undefined },
): Promise<SandboxView[]> {
  const sandboxes: SandboxView[] = [];
  for (let after: string | undefined; ; ) {
    const page = await caller.pool("list", defined({ run, after }), { signal });
    sandboxes.push(...page.sandboxes);
    after = page.next;
    if (after === undefined) return sandboxes;
  }
}
