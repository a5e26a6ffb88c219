// Whose the pods are, where the settings name a ConfigMap: with it the cluster's garbage collector takes them all, though
// no pool is there any more to do it.
import type { V1OwnerReference } from "@kubernetes/client-node";
import * as v from "valibot";
import { ProviderError } from "../../../broker/contract/index.ts";
import { errorOf } from "./api/status.ts";
import type { Transport } from "./api/transport.ts";

/** A pod of an owner that was made anew under its name would be collected at once: its identity is not believed for long. */
const FRESH_MS = 30_000;

const Found = v.object({ metadata: v.object({ uid: v.string() }) });

export class Owner {
  readonly #transport: Pick<Transport, "request">;
  readonly #namespace: string;
  readonly #name: string;
  readonly #now: () => number;
  #known: { at: number; reference: Promise<V1OwnerReference> } | undefined;

  /** `now`: a clock that only goes forward, ms. */
  constructor(
    transport: Pick<Transport, "request">,
    namespace: string,
    name: string,
    now: () => number = () => performance.now(),
  ) {
    this.#transport = transport;
    this.#namespace = namespace;
    this.#name = name;
    this.#now = now;
  }

  /** Read once for all that begin within half a minute. Throws ProviderError (reason `no_owner`) where it is not there:
   * the release is being taken down, and what is made now would stay. */
  reference(signal: AbortSignal): Promise<V1OwnerReference> {
    const now = this.#now();
    if (this.#known !== undefined && now - this.#known.at < FRESH_MS) return this.#known.reference;
    const reference = this.#read(signal);
    const known = { at: now, reference };
    this.#known = known;
    reference.catch(() => {
      if (this.#known === known) this.#known = undefined;
    });
    return reference;
  }

  async #read(signal: AbortSignal): Promise<V1OwnerReference> {
    const where = `ConfigMap ${this.#name} in namespace ${this.#namespace}`;
    const path = `/api/v1/namespaces/${this.#namespace}/configmaps/${this.#name}`;
    const request = { method: "GET" as const, path, right: "get configmaps" };
    const reply = await this.#transport.request(request, signal, true);
    if (reply.status === 404) {
      throw new ProviderError(`${where}, whose pods shall be, is not there`, { reason: "no_owner" });
    }
    if (reply.status >= 300) throw errorOf(reply, `reading ${where}`);
    const found = v.safeParse(Found, reply.body);
    if (!found.success) throw new ProviderError("the API server's answer is no ConfigMap");
    return { apiVersion: "v1", kind: "ConfigMap", name: this.#name, uid: found.output.metadata.uid };
  }
}
