// The floor of the burst: plain pods by the fastest creator there is, and the API server's own account of writes.
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { randomName } from "../../broker/contract/index.ts";
import { openAccess } from "../../pool/provider/kubernetes/api/access.ts";
import { Transport } from "../../pool/provider/kubernetes/api/transport.ts";

/** Fastest on two cores: more at once only queue at the server. */
const AT_ONCE = 32;
const DAY_MS = 86_400_000;
const PATH = "/api/v1/namespaces/default/pods";
const LABEL = "sandmesh.dev/burst";

const Line = v.object({
  type: v.string(),
  object: v.object({
    metadata: v.object({ name: v.string() }),
    status: v.object({ phase: v.optional(v.string()) }),
  }),
});

const plainPod = (name: string, burst: string) => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name, labels: { [LABEL]: burst } },
  spec: {
    nodeSelector: { type: "kwok" },
    tolerations: [{ key: "kwok.x-k8s.io/node", operator: "Exists" }],
    automountServiceAccountToken: false,
    enableServiceLinks: false,
    restartPolicy: "Never",
    terminationGracePeriodSeconds: 1,
    containers: [{ name: "sandbox", image: "simulated", command: ["/bin/true"] }],
  },
});

/** Creates `n` plain pods and waits until all run; then removes them. Answers seconds to half and to all. */
export async function plainBurst(n: number): Promise<{ halfS: number; allS: number }> {
  const transport = new Transport(openAccess(undefined, undefined), {
    maxRequests: AT_ONCE,
    requestTimeoutMs: 60_000,
  });
  const stop = new AbortController();
  const burst = randomName(8);
  const selector = encodeURIComponent(`${LABEL}=${burst}`);
  const at: number[] = [];
  const running = new Set<string>();
  const there = new Set<string>();
  const { promise: all, resolve: allRun } = Promise.withResolvers<void>();
  const { promise: none, resolve: allGone } = Promise.withResolvers<void>();
  const began = performance.now();
  const watching = (async () => {
    for await (const line of transport.lines(
      `${PATH}?labelSelector=${selector}&watch=1`,
      stop.signal,
      DAY_MS,
    )) {
      if (line === "") continue;
      const { type, object } = v.parse(Line, JSON.parse(line));
      const { name } = object.metadata;
      if (type === "DELETED") there.delete(name);
      else there.add(name);
      if (object.status.phase === "Running" && !running.has(name)) {
        running.add(name);
        at.push((performance.now() - began) / 1000);
        if (running.size === n) allRun();
      }
      if (running.size === n && there.size === 0) allGone();
    }
  })().catch((error: unknown) => {
    if (!stop.signal.aborted) throw error;
  });
  const create = async (i: number): Promise<void> => {
    const body = plainPod(`plain-${burst}-${i}`, burst);
    const { status } = await transport.request({ method: "POST", path: PATH, body }, stop.signal, true);
    if (status >= 300) throw new Error(`a plain pod was answered with ${status}`);
  };
  await Promise.all(Array.from({ length: n }, (_, i) => create(i)));
  await all;
  const path = `${PATH}?labelSelector=${selector}`;
  await transport.request({ method: "DELETE", path }, AbortSignal.timeout(60_000), true);
  await none;
  stop.abort();
  await watching;
  transport.close();
  return { halfS: at[Math.floor(n / 2)] ?? 0, allS: at.at(-1) ?? 0 };
}

const AUDIT = join(process.env.SANDMESH_CLUSTER_DIR ?? "/run/sandmesh-cluster", "log/audit.json");
const Entry = v.object({
  verb: v.string(),
  userAgent: v.optional(v.string(), ""),
  objectRef: v.optional(
    v.object({ resource: v.optional(v.string(), ""), subresource: v.exactOptional(v.string()) }),
  ),
});

/** Where the audit log stands now. */
export const auditMark = (): number => statSync(AUDIT).size;

/** Mutating requests on pods and their events since `from`: all, and those of the pool. */
export function writesSince(from: number): { all: number; ours: number; byWhat: Record<string, number> } {
  const byWhat: Record<string, number> = {};
  let all = 0;
  let ours = 0;
  for (const line of readFileSync(AUDIT).subarray(from).toString("utf8").split("\n")) {
    if (line === "") continue;
    const { verb, userAgent, objectRef } = v.parse(Entry, JSON.parse(line));
    all++;
    if (userAgent === "sandmesh-pool") ours++;
    const resource = [objectRef?.resource, objectRef?.subresource].filter(Boolean).join("/");
    const what = `${userAgent.split("/")[0]} ${verb} ${resource}`;
    byWhat[what] = (byWhat[what] ?? 0) + 1;
  }
  return { all, ours, byWhat };
}
