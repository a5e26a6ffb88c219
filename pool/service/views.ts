// What users see: list and status.

import type * as v from "valibot";
import {
  type ListAnswer,
  ListRequest,
  parse,
  type SandboxView,
  StatusRequest,
} from "../../broker/contract/index.ts";
import { isHeld, type ReplyTo } from "../lifecycle/record.ts";
import type { Provider } from "../provider/provider.ts";
import type { Acquires } from "./acquire.ts";
import { type Core, ifCurrent, respond } from "./core.ts";
import type { Reconciler } from "./reconcile.ts";
import type { Runs } from "./runs.ts";
import type { Live, Sandboxes } from "./sandboxes.ts";

export class Views {
  readonly #core: Core;
  readonly #sandboxes: Sandboxes;
  readonly #runs: Runs;
  readonly #acquires: Acquires;
  readonly #reconciler: Reconciler;
  readonly #startedAt: number;

  constructor(core: Core, sandboxes: Sandboxes, runs: Runs, acquires: Acquires, reconciler: Reconciler) {
    this.#core = core;
    this.#sandboxes = sandboxes;
    this.#runs = runs;
    this.#acquires = acquires;
    this.#reconciler = reconciler;
    this.#startedAt = core.now();
  }

  list(tenant: string, reply: ReplyTo, body: Uint8Array): void {
    const { run, sandbox, after, limit } = parse(ListRequest, body);
    if (sandbox !== undefined) {
      const live = this.#sandboxes.get(sandbox, tenant);
      if (live !== undefined) respond(this.#core, reply, { sandboxes: [this.#view(live)] });
      else ifCurrent(this.#core, () => respond(this.#core, reply, { sandboxes: [] }));
      return;
    }
    const rest = this.#ids(tenant, run, after).sort();
    const page = rest.slice(0, limit);
    const sandboxes = page.flatMap((id) => {
      const live = this.#sandboxes.get(id, tenant);
      return live === undefined ? [] : [this.#view(live)];
    });
    const last = page.at(-1);
    const answer: v.InferOutput<typeof ListAnswer> =
      rest.length > page.length && last !== undefined ? { sandboxes, next: last } : { sandboxes };
    // Of a run it says, too, what is not there any more: its holders ask for it when their connection is back.
    if (run !== undefined) ifCurrent(this.#core, () => respond(this.#core, reply, answer));
    else respond(this.#core, reply, answer);
  }

  #ids(tenant: string, run: string | undefined, after: string | undefined): string[] {
    const ids: string[] = [];
    for (const id of this.#sandboxes.ofTenant(tenant)) {
      if (after !== undefined && id <= after) continue;
      if (run === undefined || this.#sandboxes.get(id)?.record.run === run) ids.push(id);
    }
    return ids;
  }

  #view({ record, run }: Live): SandboxView {
    const now = this.#core.now();
    return {
      sandbox: record.sandbox,
      state: record.state,
      run: record.run,
      lease: record.lease,
      generation: record.generation,
      image: record.image,
      provider: record.provider,
      age_ms: Math.max(0, Math.floor(now - record.intendedAt)),
      ...(isHeld(record.state) ? { expires_in_ms: Math.floor(run.record.expiresAt - now) } : {}),
      ...(record.end === undefined ? {} : { reason: record.end.reason }),
    };
  }

  async status(reply: ReplyTo, body: Uint8Array): Promise<void> {
    parse(StatusRequest, body);
    const names = [...this.#core.providers];
    const counts = await Promise.all(
      names.map(([, provider]: [string, Provider]) => this.#reconciler.count(provider)),
    );
    respond(this.#core, reply, {
      pool: this.#core.name,
      uptime_ms: Math.floor(this.#core.now() - this.#startedAt),
      draining: this.#acquires.draining,
      queued: this.#acquires.queued,
      states: Object.fromEntries(Object.entries(this.#core.counters.states).filter(([, count]) => count > 0)),
      runs: this.#runs.size,
      providers: names.map(([name], i) => ({ name, sandboxes: counts[i] ?? 0 })),
    });
  }
}
