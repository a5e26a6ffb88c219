// The provider `kubernetes`: a pod for each sandbox, of the unmodified image. One create and one delete a sandbox; what
// becomes of it between them is told by one watch.
import {
  CanceledError,
  ConflictError,
  ProviderError,
  type SandboxSpec,
} from "../../../broker/contract/index.ts";
import type { Created, CreateRequest, Listed, Provider, ProviderEvent } from "../provider.ts";
import { openAccess } from "./api/access.ts";
import { PodApi } from "./api/pods.ts";
import { Transport } from "./api/transport.ts";
import { Informer, type Log } from "./informer.ts";
import { judge, listedOf } from "./observe.ts";
import { LABEL, podOf } from "./pod.ts";
import type { KubernetesSettings } from "./settings.ts";
import { checkName, notIsolated, refuseUnsupported } from "./spec.ts";
import { Teller } from "./tell.ts";

export type { Log } from "./informer.ts";

/** Names in one grouped delete: the address stays below 8 KiB. */
const GROUP = 100;
/** A node ends a pod within seconds; after this the watch is no longer believed to be alive. */
const OVERDUE_MS = 10_000;
/** After a forced deletion the object is gone as soon as the server has written it. */
const FORCED_MS = 15_000;

export interface KubernetesProvider extends Provider {
  /** Requests sent, answered with 429, and without an answer. */
  readonly requests: { sent: number; throttled: number; failed: number };
}

/** Nothing is asked of the cluster before the first call. Throws InvalidRequestError for an unusable kubeconfig. */
export function createKubernetesProvider(settings: KubernetesSettings, log: Log): KubernetesProvider {
  return new Kubernetes(settings, log);
}

class Kubernetes implements KubernetesProvider {
  readonly name = "kubernetes";
  readonly #settings: KubernetesSettings;
  readonly #log: Log;
  readonly #transport: Transport;
  readonly #api: PodApi;
  readonly #informer: Informer;
  readonly #teller: Teller;
  readonly #creating = new Map<string, Promise<Created>>();
  /** Since when each is being removed, by uid, over all tries: performance.now() ms. */
  readonly #removing = new Map<string, number>();
  readonly #closed = new AbortController();

  constructor(settings: KubernetesSettings, log: Log) {
    this.#settings = settings;
    this.#log = log;
    this.#transport = new Transport(openAccess(settings.kubeconfig, settings.context), settings);
    this.#api = new PodApi(this.#transport, settings.namespace, `${LABEL.mesh}=${settings.mesh}`);
    this.#teller = new Teller(settings);
    this.#informer = new Informer(this.#api, log, (change) => this.#teller.heed(change));
  }

  get requests(): KubernetesProvider["requests"] {
    return this.#transport.counters;
  }

  async validate(spec: SandboxSpec): Promise<void> {
    refuseUnsupported(spec, this.#settings);
  }

  async create(request: CreateRequest, signal: AbortSignal): Promise<Created> {
    const { sandbox, spec } = request;
    checkName(sandbox);
    refuseUnsupported(spec, this.#settings);
    let creating = this.#creating.get(sandbox);
    if (creating === undefined) {
      if (signal.aborted) throw canceled(sandbox);
      creating = this.#create(request, signal).finally(() => this.#creating.delete(sandbox));
      creating.catch(() => undefined);
      this.#creating.set(sandbox, creating);
    }
    return unlessAborted(creating, signal, sandbox);
  }

  async #create(request: CreateRequest, signal: AbortSignal): Promise<Created> {
    const { sandbox } = request;
    await unlessAborted(this.#informer.start(), signal, sandbox);
    // Once sent it is waited for, whatever the caller does: cut off, nobody could tell whether the pod will be there.
    const begun = await this.#api.create(podOf(request, this.#settings), sandbox, this.#closed.signal);
    if (begun === "taken") return this.#taken(request);
    this.#informer.add(begun);
    return { uid: begun.metadata.uid };
  }

  /** The name is there: ours from an earlier call, or not ours. */
  async #taken({ sandbox, tenant }: CreateRequest): Promise<Created> {
    const pod = this.#informer.get(sandbox) ?? (await this.#api.get(sandbox, this.#closed.signal));
    if (pod === undefined) {
      throw new ProviderError(`sandbox ${sandbox} was just removed`, { sandbox, reason: "ended" });
    }
    const { labels, uid, deletionTimestamp } = pod.metadata;
    if (labels[LABEL.mesh] !== this.#settings.mesh || labels[LABEL.tenant] !== tenant) {
      throw new ConflictError(`pod ${sandbox} is not this tenant's`, { sandbox, field: "sandbox" });
    }
    if (deletionTimestamp !== undefined || judge(pod).type === "lost") {
      const message = `sandbox ${sandbox} was made before and has ended; its name cannot be used again`;
      throw new ProviderError(message, { sandbox, reason: "ended" });
    }
    return { uid };
  }

  async remove(sandbox: string, uid: string | undefined, signal: AbortSignal): Promise<void> {
    if (!isName(sandbox)) return;
    this.#teller.expect(sandbox);
    await this.#informer.start();
    // A create under way is let through, so that the delete comes after it.
    await this.#creating.get(sandbox)?.catch(() => undefined);
    const end = this.#informer.awaitGone(sandbox);
    try {
      const found = await this.#api.delete(sandbox, uid, undefined, signal);
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
      if (there !== undefined && (uid === undefined || uid === there) && !this.#creating.has(sandbox)) {
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
    const { pods } = await this.#api.list(signal);
    return pods.map(listedOf);
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
    await Promise.allSettled([...this.#creating.values()]);
    this.#closed.abort();
    this.#teller.close();
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

const canceled = (sandbox: string): CanceledError =>
  new CanceledError(`the creation of sandbox ${sandbox} was canceled`, { sandbox });

/** What is shared goes on; only this caller leaves. */
async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal, sandbox: string): Promise<T> {
  const { promise: left, reject } = Promise.withResolvers<never>();
  const leave = (): void => reject(canceled(sandbox));
  if (signal.aborted) leave();
  signal.addEventListener("abort", leave, { once: true });
  try {
    return await Promise.race([work, left]);
  } finally {
    signal.removeEventListener("abort", leave);
  }
}

/** Whether `work` was done within `ms`. Throws CanceledError when the signal is aborted meanwhile. */
async function within(work: Promise<void>, ms: number, signal: AbortSignal): Promise<boolean> {
  const { promise, resolve, reject } = Promise.withResolvers<boolean>();
  const timer = setTimeout(() => resolve(false), ms);
  const leave = (): void => reject(new CanceledError("the removal was given up"));
  if (signal.aborted) leave();
  signal.addEventListener("abort", leave, { once: true });
  work.then(() => resolve(true));
  try {
    return await promise;
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", leave);
  }
}
