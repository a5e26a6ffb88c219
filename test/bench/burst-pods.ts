// The burst's pods by the API server's word. It ends watches by itself when it is busy (it did, after 80 lines, to all
// clients at once), so each is taken up again where it ended.
import * as v from "valibot";
import { openAccess } from "../../pool/provider/kubernetes/api/access.ts";
import { Transport, WatchRefused } from "../../pool/provider/kubernetes/api/transport.ts";
import { untilTrue } from "./burst-wait.ts";

export const PODS = "/api/v1/namespaces/default/pods";
/** Fastest on two cores: more at once only queue at the server. */
const AT_ONCE = 32;
const SILENT_MS = 120_000;
const GATEWAY_TIMEOUT = 504;

export const Pod = v.object({
  metadata: v.object({
    name: v.string(),
    resourceVersion: v.string(),
    deletionTimestamp: v.exactOptional(v.string()),
  }),
  spec: v.object({
    containers: v.array(
      v.object({
        env: v.optional(v.array(v.object({ name: v.string(), value: v.optional(v.string(), "") })), []),
      }),
    ),
  }),
  status: v.object({ phase: v.optional(v.string()) }),
});
export type Pod = v.InferOutput<typeof Pod>;

const Line = v.variant("type", [
  v.object({ type: v.picklist(["ADDED", "MODIFIED", "DELETED"]), object: Pod }),
  v.object({ type: v.literal("ERROR"), object: v.object({ message: v.optional(v.string(), "") }) }),
]);
const List = v.object({ metadata: v.object({ resourceVersion: v.string() }), items: v.array(v.unknown()) });

/** As the kubeconfig's user, with an agent of its own name in the audit log. */
export const openApi = (): Transport =>
  new Transport(openAccess(undefined, undefined), { maxRequests: AT_ONCE, requestTimeoutMs: 60_000 });

async function listed(api: Transport, selector: string, limit: number) {
  const path = `${PODS}?labelSelector=${encodeURIComponent(selector)}&limit=${limit}`;
  const reply = await api.request({ method: "GET", path }, AbortSignal.timeout(60_000), true);
  return v.parse(List, reply.body);
}

/** How many there are of these. */
export const podsLeft = async (api: Transport, selector: string): Promise<number> =>
  (await listed(api, selector, 0)).items.length;

/** Waits until there is none of these; cheap to ask. */
export const nonePods = (api: Transport, selector: string, withinMs: number): Promise<void> =>
  untilTrue(
    `the end of all pods ${selector}`,
    withinMs,
    async () => (await listed(api, selector, 1)).items.length === 0,
  );

export interface Watch {
  /** Rejects when the watch can tell nothing more. */
  readonly failed: Promise<never>;
  stop(): Promise<void>;
}

/** Each change of the pods of `selector` from now on; there must be none of them yet. */
export async function watchPods(
  api: Transport,
  selector: string,
  heed: (type: "seen" | "gone", pod: Pod) => void,
): Promise<Watch> {
  const stop = new AbortController();
  let version = (await listed(api, selector, 1)).metadata.resourceVersion;
  const once = async (): Promise<void> => {
    const from = `labelSelector=${encodeURIComponent(selector)}&watch=1&resourceVersion=${version}`;
    for await (const line of api.watch({ path: `${PODS}?${from}` }, stop.signal, SILENT_MS)) {
      if (line.length === 0) continue;
      const { type, object } = v.parse(Line, JSON.parse(String(line)));
      if (type === "ERROR") throw new Error(`the watch on ${selector} cannot go on: ${object.message}`);
      version = object.metadata.resourceVersion;
      heed(type === "DELETED" ? "gone" : "seen", object);
    }
  };
  const running = (async () => {
    while (!stop.signal.aborted) {
      await once().catch((error: unknown) => {
        const fatal =
          error instanceof WatchRefused || v.isValiError(error) || String(error).includes("cannot");
        if (fatal && !stop.signal.aborted) throw error;
      });
      await Bun.sleep(10);
    }
  })();
  const failed = running.then(() => new Promise<never>(() => undefined));
  failed.catch(() => undefined);
  return {
    failed,
    async stop() {
      stop.abort();
      await running.catch(() => undefined);
    },
  };
}

/** Removes all of these, and waits until none is left. Of thousands on a busy machine the server ends a request after its own
 * minute, with some of them still to be asked for: those are the next one's. */
export async function removePods(api: Transport, selector: string, withinMs: number): Promise<void> {
  const path = `${PODS}?labelSelector=${encodeURIComponent(selector)}`;
  const signal = AbortSignal.timeout(withinMs);
  for (;;) {
    const asked = await api.request({ method: "DELETE", path }, signal, false).catch((error: unknown) => {
      if (signal.aborted) throw error;
      return { status: GATEWAY_TIMEOUT };
    });
    if (asked.status < 300) break;
    await Bun.sleep(1_000);
  }
  await nonePods(api, selector, withinMs);
}
