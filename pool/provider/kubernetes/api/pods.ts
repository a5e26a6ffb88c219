// The pods of one mesh in one namespace, by the API server: create, get, delete, list, watch.
import type { V1Pod } from "@kubernetes/client-node";
import * as v from "valibot";
import { check, ProviderError } from "../../../../broker/contract/index.ts";
import { PodView } from "../observe.ts";
import { Collection } from "./collection.ts";
import { BINARY_OR_JSON } from "./objects.ts";
import { errorOf } from "./status.ts";
import type { ApiReply, Transport } from "./transport.ts";

export class PodApi {
  readonly #transport: Transport;
  readonly #path: string;
  readonly #mesh: string;
  /** All of the mesh's. */
  readonly all: Collection<PodView>;

  constructor(transport: Transport, namespace: string, meshLabel: string) {
    this.#transport = transport;
    this.#path = `/api/v1/namespaces/${namespace}/pods`;
    this.#mesh = meshLabel;
    this.all = new Collection(transport, this.#path, meshLabel, PodView, "pods", BINARY_OR_JSON);
  }

  /** `taken`: there is a pod of that name. Throws the error that the refusal means. */
  async create(pod: V1Pod, sandbox: string, signal: AbortSignal): Promise<PodView | "taken"> {
    // The name is never used again, so to send it twice makes no second pod.
    const reply = await this.#transport.request(
      { method: "POST", path: this.#path, body: pod, accept: BINARY_OR_JSON, right: "create pods" },
      signal,
      true,
    );
    if (reply.status === 409 && reasonOf(reply) === "AlreadyExists") return "taken";
    if (reply.status >= 300) {
      const error = errorOf(reply, `creating sandbox ${sandbox}`, sandbox);
      // Such as the quota that the pod itself has used up: nobody may conclude that it was not made.
      if (reply.afterUnanswered === true) {
        throw new ProviderError(error.message, { sandbox, reason: "refused", cause: error });
      }
      throw error;
    }
    return podOfReply(reply);
  }

  async get(sandbox: string, signal: AbortSignal): Promise<PodView | undefined> {
    const reply = await this.#transport.request(
      { method: "GET", path: `${this.#path}/${sandbox}`, accept: BINARY_OR_JSON, right: "get pods" },
      signal,
      true,
    );
    if (reply.status === 404) return undefined;
    if (reply.status >= 300) throw errorOf(reply, `reading sandbox ${sandbox}`, sandbox);
    return podOfReply(reply);
  }

  /** Answers the uid of what is being deleted; undefined where there is nothing (any more) of that name and uid. */
  async delete(
    sandbox: string,
    uid: string | undefined,
    graceSeconds: number | undefined,
    signal: AbortSignal,
  ): Promise<string | undefined> {
    const body = {
      apiVersion: "v1",
      kind: "DeleteOptions",
      ...(uid === undefined ? {} : { preconditions: { uid } }),
      ...(graceSeconds === undefined ? {} : { gracePeriodSeconds: graceSeconds }),
    };
    const path = `${this.#path}/${sandbox}`;
    const request = { method: "DELETE" as const, path, body, accept: BINARY_OR_JSON, right: "delete pods" };
    const reply = await this.#transport.request(request, signal, true);
    // 409: the name is another pod's by now. 404: gone.
    if (reply.status === 404 || (reply.status === 409 && uid !== undefined)) return undefined;
    if (reply.status >= 300) throw errorOf(reply, `deleting sandbox ${sandbox}`, sandbox);
    return uidOf(reply) ?? uid;
  }

  /** One request for all of these names. */
  async deleteAll(names: readonly string[], nameLabel: string, signal: AbortSignal): Promise<void> {
    const selector = encodeURIComponent(`${this.#mesh},${nameLabel} in (${names.join(",")})`);
    const path = `${this.#path}?labelSelector=${selector}`;
    const right = "deletecollection pods";
    const request = { method: "DELETE" as const, path, accept: BINARY_OR_JSON, right };
    const reply = await this.#transport.request(request, signal, true);
    if (reply.status >= 300) throw errorOf(reply, `deleting ${names.length} sandboxes`);
  }
}

function podOfReply(reply: ApiReply): PodView {
  try {
    return check(PodView, reply.body);
  } catch (cause) {
    throw new ProviderError("the API server's answer is no pod", { cause });
  }
}

const reasonOf = ({ body }: ApiReply): string => {
  const parsed = v.safeParse(v.object({ reason: v.string() }), body);
  return parsed.success ? parsed.output.reason : "";
};

/** A delete is answered with the pod, or with a status that names it. */
function uidOf({ body }: ApiReply): string | undefined {
  const Answer = v.union([
    v.object({ metadata: v.object({ uid: v.string() }) }),
    v.object({ details: v.object({ uid: v.string() }) }),
  ]);
  const parsed = v.safeParse(Answer, body);
  if (!parsed.success) return undefined;
  return "metadata" in parsed.output ? parsed.output.metadata.uid : parsed.output.details.uid;
}
