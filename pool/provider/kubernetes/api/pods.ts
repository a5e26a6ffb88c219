// The pods of one mesh in one namespace, by the API server: create, delete, list, watch. What is answered is parsed.

import type { V1Pod } from "@kubernetes/client-node";
import * as v from "valibot";
import { ProviderError } from "../../../../broker/contract/index.ts";
import { PodView } from "../observe.ts";
import { errorOf } from "./status.ts";
import type { ApiReply, Transport } from "./transport.ts";

/** Pods a page: parsing one holds the event loop for some milliseconds. */
const PAGE = 500;
/** The server ends a watch by then; spread, so that those of several pools do not come back at once. */
const WATCH_S = 300;
/** A bookmark comes each minute; a watch that is silent for longer is dead. */
const WATCH_SILENT_MS = 150_000;

const PodList = v.object({
  metadata: v.object({ resourceVersion: v.string(), continue: v.exactOptional(v.string()) }),
  items: v.array(PodView),
});
export const WatchLine = v.variant("type", [
  v.object({ type: v.picklist(["ADDED", "MODIFIED", "DELETED"]), object: PodView }),
  v.object({
    type: v.literal("BOOKMARK"),
    object: v.object({ metadata: v.object({ resourceVersion: v.string() }) }),
  }),
  v.object({
    type: v.literal("ERROR"),
    object: v.object({ code: v.optional(v.number(), 0), message: v.optional(v.string(), "") }),
  }),
]);
export type WatchLine = v.InferOutput<typeof WatchLine>;

export class PodApi {
  readonly #transport: Transport;
  readonly #path: string;
  readonly #selector: string;
  readonly #mesh: string;

  constructor(transport: Transport, namespace: string, meshLabel: string) {
    this.#transport = transport;
    this.#path = `/api/v1/namespaces/${namespace}/pods`;
    this.#mesh = meshLabel;
    this.#selector = encodeURIComponent(meshLabel);
  }

  /** `taken`: there is a pod of that name. Throws the error that the refusal means. */
  async create(pod: V1Pod, sandbox: string, signal: AbortSignal): Promise<PodView | "taken"> {
    // The name is never used again, so to send it twice makes no second pod.
    const reply = await this.#transport.request(
      { method: "POST", path: this.#path, body: pod },
      signal,
      true,
    );
    if (reply.status === 409 && reasonOf(reply) === "AlreadyExists") return "taken";
    if (reply.status >= 300) throw errorOf(reply, `creating sandbox ${sandbox}`, sandbox);
    return podOfReply(reply);
  }

  async get(sandbox: string, signal: AbortSignal): Promise<PodView | undefined> {
    const reply = await this.#transport.request(
      { method: "GET", path: `${this.#path}/${sandbox}` },
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
    const reply = await this.#transport.request({ method: "DELETE", path, body }, signal, true);
    // 409: the name is another pod's by now. 404: gone.
    if (reply.status === 404 || (reply.status === 409 && uid !== undefined)) return undefined;
    if (reply.status >= 300) throw errorOf(reply, `deleting sandbox ${sandbox}`, sandbox);
    return uidOf(reply) ?? uid;
  }

  /** One request for all of these names. */
  async deleteAll(names: readonly string[], nameLabel: string, signal: AbortSignal): Promise<void> {
    const selector = encodeURIComponent(`${this.#mesh},${nameLabel} in (${names.join(",")})`);
    const path = `${this.#path}?labelSelector=${selector}`;
    const reply = await this.#transport.request({ method: "DELETE", path }, signal, true);
    if (reply.status >= 300) throw errorOf(reply, `deleting ${names.length} sandboxes`);
  }

  /** All of the mesh's, and the version that a watch goes on from. */
  async list(signal: AbortSignal): Promise<{ pods: PodView[]; version: string }> {
    const pods: PodView[] = [];
    let next: string | undefined;
    for (;;) {
      const more = next === undefined ? "" : `&continue=${encodeURIComponent(next)}`;
      const path = `${this.#path}?labelSelector=${this.#selector}&limit=${PAGE}${more}`;
      const reply = await this.#transport.request({ method: "GET", path }, signal, true);
      if (reply.status === 410 && next !== undefined) {
        // The pages' snapshot was compacted away: from the start.
        pods.length = 0;
        next = undefined;
        continue;
      }
      if (reply.status >= 300) throw errorOf(reply, "listing sandboxes");
      const page = v.safeParse(PodList, reply.body);
      if (!page.success) throw new ProviderError("the API server's list cannot be read");
      pods.push(...page.output.items);
      next = page.output.metadata.continue;
      if (next === undefined || next === "") return { pods, version: page.output.metadata.resourceVersion };
    }
  }

  /** What happens after `version`. Ends when the server ends it. Throws WatchRefused and network errors. */
  async *watch(version: string, signal: AbortSignal): AsyncGenerator<WatchLine, void> {
    const seconds = Math.round(WATCH_S * (1 + Math.random() / 2));
    const query = `watch=1&allowWatchBookmarks=true&timeoutSeconds=${seconds}`;
    const path = `${this.#path}?labelSelector=${this.#selector}&resourceVersion=${version}&${query}`;
    for await (const line of this.#transport.lines(path, signal, WATCH_SILENT_MS)) {
      if (line !== "") yield v.parse(WatchLine, JSON.parse(line));
    }
  }
}

function podOfReply(reply: ApiReply): PodView {
  const parsed = v.safeParse(PodView, reply.body);
  if (!parsed.success) throw new ProviderError("the API server's answer is no pod");
  return parsed.output;
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
