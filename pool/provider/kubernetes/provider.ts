// The provider `kubernetes`: a pod for each sandbox, of the unmodified image. One create and one delete a sandbox; what
// becomes of it between them is told by one watch.
import { ProviderError, type SandboxSpec } from "../../../broker/contract/index.ts";
import type { Created, CreateRequest, Listed, Provider, ProviderEvent } from "../provider.ts";
import { openAccess } from "./api/access.ts";
import { PodApi } from "./api/pods.ts";
import { Transport } from "./api/transport.ts";
import { Creation } from "./creation.ts";
import { Informer } from "./informer.ts";
import { listedOf } from "./observe.ts";
import { Owner } from "./owner.ts";
import { Placer } from "./place/placer.ts";
import { LABEL } from "./pod.ts";
import type { Log } from "./reflect.ts";
import type { KubernetesSettings } from "./settings.ts";
import { checkName, notIsolated, refuseUnsupported } from "./spec.ts";
import { Teller } from "./tell.ts";
import { FORCED_MS, within } from "./waiting.ts";

export type { Log } from "./reflect.ts";

/** Names in one grouped delete: the address stays below 8 KiB. */
const GROUP = 100;
/** A node ends a pod within seconds; after this the watch is no longer believed to be alive. */
const OVERDUE_MS = 10_000;
export interface KubernetesProvider extends Provider {
  /** Requests sent, answered with 429, and without an answer. */
  readonly requests: { sent: number; throttled: number; failed: number };
}

/** Nothing is asked of the cluster before the first call. Throws InvalidRequestError for an unusable kubeconfig. */
export function createKubernetesProvider(
  settings: KubernetesSettings,
  log: Log,
  name = "kubernetes",
): KubernetesProvider {
  return new Kubernetes(settings, log, name);
}

class Kubernetes implements KubernetesProvider {
  readonly name: string;
  readonly #settings: KubernetesSettings;
  readonly #log: Log;
  readonly #transport: Transport;
  readonly #api: PodApi;
  readonly #informer: Informer;
  readonly #teller: Teller;
  readonly #placer: Placer | undefined;
  readonly #creation: Creation;
  /** Since when each is being removed, by uid, over all tries: performance.now() ms. */
  readonly #removing = new Map<string, number>();
  readonly #closed = new AbortController();

  constructor(settings: KubernetesSettings, log: Log, name: string) {
    this.name = name;
    this.#settings = settings;
    this.#log = log;
    this.#transport = new Transport(openAccess(settings.kubeconfig, settings.context), settings);
    this.#api = new PodApi(this.#transport, settings.namespace, `${LABEL.mesh}=${settings.mesh}`);
    this.#teller = new Teller(settings);
    const { placement, directNodes, namespace, ownerConfigMap } = settings;
    const owner =
      ownerConfigMap === undefined ? undefined : new Owner(this.#transport, namespace, ownerConfigMap);
    this.#placer = placement === "direct" ? new Placer(this.#transport, directNodes, log) : undefined;
    this.#informer = new Informer(this.#api.all, log, (change) => {
      // Refused where we placed it, it is about to be made again: nobody is to hear of this one.
      if (this.#placer?.heed(change) === true) this.#teller.expect(change.pod.metadata.name);
      else this.#teller.heed(change);
    });
    this.#creation = new Creation({
      settings,
      log,
      api: this.#api,
      informer: this.#informer,
      teller: this.#teller,
      placer: this.#placer,
      owner,
      closed: this.#closed.signal,
    });
  }

  get requests(): KubernetesProvider["requests"] {
    return this.#transport.counters;
  }

  async validate(spec: SandboxSpec): Promise<void> {
    refuseUnsupported(spec, this.#settings);
  }

  create(request: CreateRequest, signal: AbortSignal): Promise<Created> {
    return this.#creation.create(request, signal);
  }

  async remove(sandbox: string, uid: string | undefined, signal: AbortSignal): Promise<void> {
    if (!isName(sandbox)) return;
    this.#teller.expect(sandbox);
    await this.#informer.start();
    // A create under way is let through, so that the delete comes after it.
    await this.#creation.ended(sandbox);
    const end = this.#informer.awaitGone(sandbox);
    try {
      const found = this.#asked(sandbox, uid) ?? (await this.#api.delete(sandbox, uid, undefined, signal));
      if (found === undefined) return this.#teller.forgive(sandbox, this.#informer.get(sandbox));
      end.acked(found);
      void end.gone.then(() => this.#removing.delete(found));
      if (await this.#goneWithin(end.gone, this.#patienceMs(found), signal)) return;
      await this.#force(sandbox, found, signal);
      if (await within(end.gone, FORCED_MS, signal)) return;
      throw new ProviderError(`pod ${sandbox} is being deleted and does not go: it may have finalizers`, {
        sandbox,
        reason: "stuck",
      });
    } finally {
      end.forget();
    }
  }

  /** The uid of one that is on its way out since an earlier try. Asked for once more, it would cost a busy API server a write
   * each, and go no sooner. */
  #asked(sandbox: string, uid: string | undefined): string | undefined {
    const pod = this.#informer.get(sandbox)?.metadata;
    if (pod?.deletionTimestamp === undefined || !this.#removing.has(pod.uid)) return undefined;
    return uid === undefined || uid === pod.uid ? pod.uid : undefined;
  }

  async #goneWithin(gone: Promise<void>, ms: number, signal: AbortSignal): Promise<boolean> {
    const overdue = setInterval(() => this.#informer.overdue(), OVERDUE_MS);
    try {
      return await within(gone, ms, signal);
    } finally {
      clearInterval(overdue);
    }
  }

  /** How long its node may still take: the caller's tries end sooner, so it is counted over all of them. */
  #patienceMs(uid: string): number {
    const since = this.#removing.get(uid) ?? performance.now();
    this.#removing.set(uid, since);
    return Math.max(0, since + this.#settings.graceMs + this.#settings.forceAfterMs - performance.now());
  }

  /** Takes the object away though its node has not said that the processes are gone: the node may be lost. They may live
   * on there, but the lease, the generation and the daemon's own dead man's switch fence them. */
  async #force(sandbox: string, uid: string, signal: AbortSignal): Promise<void> {
    const node = this.#informer.get(sandbox)?.spec.nodeName;
    this.#log.warn({ sandbox, node }, "the node did not end the pod in time; its object is removed by force");
    await this.#api.delete(sandbox, uid, 0, signal);
  }

  async removeMany(
    sandboxes: readonly { sandbox: string; uid: string | undefined }[],
    signal: AbortSignal,
  ): Promise<void> {
    await this.#informer.start();
    const known: { sandbox: string; uid: string }[] = [];
    const others: Promise<void>[] = [];
    for (const { sandbox, uid } of sandboxes) {
      const pod = this.#informer.get(sandbox);
      const there = pod?.metadata.uid;
      // Grouped deletes have no precondition: only what is surely meant may be among them.
      if (there !== undefined && (uid === undefined || uid === there) && !this.#creation.has(sandbox)) {
        known.push({ sandbox, uid: there });
      } else others.push(this.remove(sandbox, uid, signal));
    }
    for (let i = 0; i < known.length; i += GROUP) {
      others.push(this.#removeGroup(known.slice(i, i + GROUP), signal));
    }
    const failed = (await Promise.allSettled(others)).find((each) => each.status === "rejected");
    if (failed !== undefined) throw failed.reason;
  }

  async #removeGroup(group: { sandbox: string; uid: string }[], signal: AbortSignal): Promise<void> {
    if (group.length === 1) return this.remove(group[0]?.sandbox ?? "", group[0]?.uid, signal);
    const ends = group.map(({ sandbox }) => this.#informer.awaitGone(sandbox));
    try {
      for (const { sandbox } of group) this.#teller.expect(sandbox);
      await this.#api.deleteAll(
        group.map(({ sandbox }) => sandbox),
        LABEL.sandbox,
        signal,
      );
      for (const [i, end] of ends.entries()) end.acked(group[i]?.uid ?? "");
      const all = Promise.all(ends.map((end) => end.gone)).then(() => undefined);
      const patience = Math.max(...group.map(({ uid }) => this.#patienceMs(uid)));
      if (await this.#goneWithin(all, patience, signal)) return;
    } finally {
      for (const end of ends) end.forget();
      for (const { sandbox, uid } of group) {
        if (this.#informer.get(sandbox)?.metadata.uid !== uid) this.#removing.delete(uid);
      }
    }
    // What is left is seen to one by one, by force where it must be.
    await Promise.all(
      group
        .filter(({ sandbox, uid }) => this.#informer.get(sandbox)?.metadata.uid === uid)
        .map(({ sandbox, uid }) => this.remove(sandbox, uid, signal)),
    );
  }

  async list(signal: AbortSignal): Promise<Listed[]> {
    const { items } = await this.#api.all.list(signal);
    return items.map(listedOf);
  }

  watch(handle: (event: ProviderEvent) => void): () => void {
    // Its failure is tried again, and told in the log.
    void this.#informer.start();
    return this.#teller.listen(handle);
  }

  notIsolated(spec: SandboxSpec): string[] {
    return notIsolated(spec, this.#settings);
  }

  async close(): Promise<void> {
    await this.#creation.allEnded();
    this.#closed.abort();
    this.#teller.close();
    await this.#placer?.stop();
    await this.#informer.stop();
    this.#transport.close();
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
