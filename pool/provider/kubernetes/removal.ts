// How a pod goes: asked for once, alone or together with others, and waited for until the watch has told of its end; by
// force where its node does not answer.
import { ProviderError } from "../../../broker/contract/index.ts";
import { MAX_REMOVED_TOGETHER, type Removed } from "../provider.ts";
import type { PodApi } from "./api/pods.ts";
import type { Creation } from "./creation.ts";
import type { Informer } from "./informer.ts";
import { LABEL } from "./pod.ts";
import type { Log } from "./reflect.ts";
import type { KubernetesSettings } from "./settings.ts";
import { checkName } from "./spec.ts";
import type { Teller } from "./tell.ts";
import { FORCED_MS, within } from "./waiting.ts";

export interface RemovalParts {
  settings: Pick<KubernetesSettings, "graceMs" | "forceAfterMs">;
  api: Pick<PodApi, "delete" | "deleteAll">;
  informer: Informer;
  teller: Teller;
  creation: Pick<Creation, "has" | "ended">;
  log: Log;
}

/** One of those that a grouped delete names. */
interface Named {
  sandbox: string;
  uid: string;
  end: ReturnType<Informer["awaitGone"]>;
  /** Of all that are named with it. */
  answer: Promise<void>;
}

/** A node ends a pod within seconds; after this the watch is no longer believed to be alive. */
const OVERDUE_MS = 10_000;

export class Removal {
  readonly #parts: RemovalParts;
  /** What was asked for, by uid, over all tries: since when it goes, performance.now() ms; undefined until the API server has
   * said so, which may have heard it all the same. */
  readonly #asked = new Map<string, number | undefined>();

  constructor(parts: RemovalParts) {
    this.#parts = parts;
  }

  /** The pod `uid` is no more. */
  gone(uid: string): void {
    this.#asked.delete(uid);
  }

  async remove(sandbox: string, uid: string | undefined, signal: AbortSignal): Promise<void> {
    if (!isName(sandbox)) return;
    const { informer, creation, teller } = this.#parts;
    teller.expect(sandbox);
    await informer.start();
    // A create under way is let through, so that the delete comes after it.
    await creation.ended(sandbox);
    const end = informer.awaitGone(sandbox);
    try {
      const found = this.#going(sandbox, uid) ?? (await this.#ask(sandbox, uid, signal));
      if (found === undefined) return teller.forgive(sandbox, informer.get(sandbox));
      end.acked(found);
      if (await this.#goneInTime(found, end.gone, signal)) return;
      await this.#force(sandbox, found, signal);
      if (await within(end.gone, FORCED_MS, signal)) return this.gone(found);
      throw new ProviderError(`pod ${sandbox} is being deleted and does not go: it may have finalizers`, {
        sandbox,
        reason: "stuck",
      });
    } finally {
      end.forget();
    }
  }

  removeMany(sandboxes: readonly Removed[], signal: AbortSignal): Promise<void>[] {
    const named = this.#parts.informer.start().then(() => this.#askTogether(sandboxes, signal));
    return sandboxes.map(async (each) => {
      const found = (await named).get(each);
      if (found === undefined) await this.remove(each.sandbox, each.uid, signal);
      else await this.#withOthers(found, signal);
    });
  }

  async #withOthers({ sandbox, uid, end, answer }: Named, signal: AbortSignal): Promise<void> {
    try {
      // What is gone is so before the request is answered, which takes as long as all that it names.
      const first = await Promise.race([end.gone.then(() => "gone"), answer]).catch((error: unknown) => {
        // Broken off it has reached a part.
        if (signal.aborted || this.#going(sandbox, uid) === undefined) throw error;
      });
      if (first === "gone" || (await this.#goneInTime(uid, end.gone, signal))) return;
    } finally {
      end.forget();
    }
    // Alone, by force where it must be.
    await this.remove(sandbox, uid, signal);
  }

  /** Grouped deletes have no precondition: only what is surely meant may be among them. */
  #askTogether(sandboxes: readonly Removed[], signal: AbortSignal): Map<Removed, Named> {
    const { informer, creation, teller, api } = this.#parts;
    const meant = sandboxes.flatMap((each) => {
      const { sandbox } = each;
      const uid = informer.get(sandbox)?.metadata.uid;
      const sure =
        uid !== undefined && (each.uid === undefined || each.uid === uid) && !creation.has(sandbox);
      return sure && this.#going(sandbox, uid) === undefined ? [{ each, sandbox, uid }] : [];
    });
    const named = new Map<Removed, Named>();
    for (let i = 0; i < meant.length; i += MAX_REMOVED_TOGETHER) {
      const group = meant.slice(i, i + MAX_REMOVED_TOGETHER);
      if (group.length === 1) break;
      for (const { sandbox } of group) teller.expect(sandbox);
      const ends = group.map(({ sandbox }) => informer.awaitGone(sandbox));
      const names = group.map(({ sandbox }) => sandbox);
      const answer = api.deleteAll(names, LABEL.sandbox, signal);
      for (const [j, end] of ends.entries()) {
        const one = group[j];
        if (one === undefined) continue;
        const { each, sandbox, uid } = one;
        end.acked(uid);
        this.#note(uid);
        named.set(each, { sandbox, uid, end, answer });
      }
    }
    return named;
  }

  #ask(sandbox: string, uid: string | undefined, signal: AbortSignal): Promise<string | undefined> {
    const there = this.#parts.informer.get(sandbox)?.metadata.uid;
    if (there !== undefined && (uid === undefined || uid === there)) this.#note(there);
    return this.#parts.api.delete(sandbox, uid, undefined, signal);
  }

  #note(uid: string): void {
    this.#asked.set(uid, this.#asked.get(uid));
  }

  /** The uid of one that is on its way out since an earlier try. Asked for once more, it would cost a busy API server a write
   * each, and go no sooner. */
  #going(sandbox: string, uid: string | undefined): string | undefined {
    const pod = this.#parts.informer.get(sandbox)?.metadata;
    if (pod?.deletionTimestamp === undefined || !this.#asked.has(pod.uid)) return undefined;
    return uid === undefined || uid === pod.uid ? pod.uid : undefined;
  }

  /** Whether it went while its node may still take its time: counted over all tries, since each may end sooner. */
  async #goneInTime(uid: string, gone: Promise<void>, signal: AbortSignal): Promise<boolean> {
    const { graceMs, forceAfterMs } = this.#parts.settings;
    const since = this.#asked.get(uid) ?? performance.now();
    this.#asked.set(uid, since);
    const overdue = setInterval(() => this.#parts.informer.overdue(), OVERDUE_MS);
    try {
      const patienceMs = Math.max(0, since + graceMs + forceAfterMs - performance.now());
      const went = await within(gone, patienceMs, signal);
      if (went) this.gone(uid);
      return went;
    } finally {
      clearInterval(overdue);
    }
  }

  /** Takes the object away though its node has not said that the processes are gone: the node may be lost. They may live
   * on there, but the lease, the generation and the daemon's own dead man's switch fence them. */
  async #force(sandbox: string, uid: string, signal: AbortSignal): Promise<void> {
    const node = this.#parts.informer.get(sandbox)?.spec.nodeName;
    this.#parts.log.warn(
      { sandbox, node },
      "the node did not end the pod in time; its object is removed by force",
    );
    await this.#parts.api.delete(sandbox, uid, 0, signal);
  }
}

function isName(sandbox: string): boolean {
  try {
    checkName(sandbox);
    return true;
  } catch {
    return false; // There can be no pod of that name.
  }
}
