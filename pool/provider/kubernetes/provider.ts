// The provider `kubernetes`: a pod for each sandbox, of the unmodified image. One create and one delete a sandbox; what
// becomes of it between them is told by one watch.
import type { SandboxSpec } from "../../../broker/contract/index.ts";
import type { Created, CreateRequest, Listed, Provider, ProviderEvent, Removed } from "../provider.ts";
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
import { Removal } from "./removal.ts";
import type { KubernetesSettings } from "./settings.ts";
import { notIsolated, refuseUnsupported } from "./spec.ts";
import { Teller } from "./tell.ts";

export type { Log } from "./reflect.ts";

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
  readonly #transport: Transport;
  readonly #api: PodApi;
  readonly #informer: Informer;
  readonly #teller: Teller;
  readonly #placer: Placer | undefined;
  readonly #creation: Creation;
  readonly #removal: Removal;
  readonly #closed = new AbortController();

  constructor(settings: KubernetesSettings, log: Log, name: string) {
    this.name = name;
    this.#settings = settings;
    this.#transport = new Transport(openAccess(settings.kubeconfig, settings.context), settings);
    this.#api = new PodApi(this.#transport, settings.namespace, `${LABEL.mesh}=${settings.mesh}`);
    this.#teller = new Teller(settings);
    const { placement, directNodes, namespace, ownerConfigMap } = settings;
    const owner =
      ownerConfigMap === undefined ? undefined : new Owner(this.#transport, namespace, ownerConfigMap);
    this.#placer = placement === "direct" ? new Placer(this.#transport, directNodes, log) : undefined;
    this.#informer = new Informer(this.#api.all, log, (change) => {
      // Refused where we placed it, it is about to be made again: nobody is to hear of this one.
      if (change.type === "gone") this.#removal.gone(change.pod.metadata.uid);
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
    this.#removal = new Removal({
      settings,
      log,
      api: this.#api,
      informer: this.#informer,
      teller: this.#teller,
      creation: this.#creation,
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

  remove(sandbox: string, uid: string | undefined, signal: AbortSignal): Promise<void> {
    return this.#removal.remove(sandbox, uid, signal);
  }

  removeMany(sandboxes: readonly Removed[], signal: AbortSignal): Promise<void>[] {
    return this.#removal.removeMany(sandboxes, signal);
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
