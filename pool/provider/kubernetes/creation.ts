// How a pod comes to be: once by name, on a node of ours where that is asked for and can be, else where the scheduler
// finds one.
import type { V1Pod } from "@kubernetes/client-node";
import {
  ConflictError,
  PermissionDeniedError,
  ProviderError,
  UnsupportedError,
} from "../../../broker/contract/index.ts";
import { canceled, unlessAborted } from "../canceled.ts";
import type { Created, CreateRequest } from "../provider.ts";
import type { PodApi } from "./api/pods.ts";
import type { Informer } from "./informer.ts";
import { judge, type PodView } from "./observe.ts";
import type { Owner } from "./owner.ts";
import type { Placer } from "./place/placer.ts";
import { LABEL, podOf } from "./pod.ts";
import type { Log } from "./reflect.ts";
import type { KubernetesSettings } from "./settings.ts";
import { checkName, refuseUnsupported } from "./spec.ts";
import type { Teller } from "./tell.ts";
import { FORCED_MS, within } from "./waiting.ts";

export interface CreationParts {
  settings: KubernetesSettings;
  api: PodApi;
  informer: Informer;
  teller: Teller;
  placer: Placer | undefined;
  owner: Owner | undefined;
  log: Log;
  /** The provider is closed. */
  closed: AbortSignal;
}

export class Creation {
  readonly #parts: CreationParts;
  readonly #creating = new Map<string, Promise<Created>>();

  constructor(parts: CreationParts) {
    this.#parts = parts;
  }

  has(sandbox: string): boolean {
    return this.#creating.has(sandbox);
  }

  /** When the create of this name that is under way has come to its end, whatever it is. */
  async ended(sandbox: string): Promise<void> {
    this.#parts.placer?.giveUp(sandbox);
    await this.#creating.get(sandbox)?.catch(() => undefined);
  }

  async allEnded(): Promise<void> {
    await Promise.all([...this.#creating.keys()].map((sandbox) => this.ended(sandbox)));
  }

  async create(request: CreateRequest, signal: AbortSignal): Promise<Created> {
    const { sandbox, spec } = request;
    checkName(sandbox);
    refuseUnsupported(spec, this.#parts.settings);
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
    const known = Promise.all([this.#parts.informer.start(), this.#parts.placer?.start()]);
    await unlessAborted(known, signal, sandbox);
    const owner = await this.#parts.owner?.reference(this.#parts.closed);
    const pod = podOf(request, this.#parts.settings, owner);
    const begun = (await this.#createDirect(sandbox, pod)) ?? (await this.#send(sandbox, pod));
    return begun === "taken" ? this.#taken(request) : { uid: begun.metadata.uid };
  }

  /** Once sent it is waited for, whatever the caller does: cut off, nobody could tell whether the pod will be there. */
  async #send(sandbox: string, pod: V1Pod): Promise<PodView | "taken"> {
    const begun = await this.#parts.api.create(pod, sandbox, this.#parts.closed);
    if (begun !== "taken") this.#parts.informer.add(begun);
    return begun;
  }

  /** undefined: it is left to the scheduler, since no node of ours takes it. */
  async #createDirect(sandbox: string, pod: V1Pod): Promise<PodView | "taken" | undefined> {
    const placer = this.#parts.placer;
    const nodeName = placer?.place(sandbox, pod);
    if (placer === undefined || nodeName === undefined) return undefined;
    const admission = placer.admission(sandbox);
    try {
      const begun = await this.#send(sandbox, { ...pod, spec: { containers: [], ...pod.spec, nodeName } });
      if (begun === "taken") return begun;
      if ((await admission) !== "refused") return begun;
      const { uid } = begun.metadata;
      const reason = this.#parts.informer.get(sandbox)?.status.reason;
      this.#parts.log.info(
        { sandbox, node: nodeName, reason },
        "its node refused the pod; the scheduler places it",
      );
      await this.#withdraw(sandbox, uid);
      return undefined;
    } catch (error) {
      placer.release(sandbox);
      // It may be the placement that a policy forbids.
      if (error instanceof UnsupportedError || error instanceof PermissionDeniedError) return undefined;
      throw error;
    } finally {
      placer.giveUp(sandbox);
    }
  }

  /** Takes away a pod that never ran, so that its name is free. */
  async #withdraw(sandbox: string, uid: string): Promise<void> {
    const end = this.#parts.informer.awaitGone(sandbox);
    try {
      const found = await this.#parts.api.delete(sandbox, uid, 0, this.#parts.closed);
      if (found === undefined) return this.#parts.teller.forgive(sandbox, undefined);
      end.acked(found);
      await within(end.gone, FORCED_MS, this.#parts.closed);
    } finally {
      end.forget();
    }
  }

  /** The name is there: ours from an earlier call, or not ours. */
  async #taken({ sandbox, tenant }: CreateRequest): Promise<Created> {
    const pod = this.#parts.informer.get(sandbox) ?? (await this.#parts.api.get(sandbox, this.#parts.closed));
    if (pod === undefined) {
      throw new ProviderError(`sandbox ${sandbox} was just removed`, { sandbox, reason: "ended" });
    }
    const { labels, uid, deletionTimestamp } = pod.metadata;
    if (labels[LABEL.mesh] !== this.#parts.settings.mesh || labels[LABEL.tenant] !== tenant) {
      throw new ConflictError(`pod ${sandbox} is not this tenant's`, { sandbox, field: "sandbox" });
    }
    if (deletionTimestamp !== undefined || judge(pod).type === "lost") {
      const message = `sandbox ${sandbox} was made before and has ended; its name cannot be used again`;
      throw new ProviderError(message, { sandbox, reason: "ended" });
    }
    return { uid };
  }
}
