// What a burst costs: writes by the API server's own metrics and by its audit log, and CPU seconds of each program.
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { CLUSTER_DIR } from "../cluster/programs.ts";
import { round } from "./bench.ts";
import { kubectl } from "./burst-kubectl.ts";
import { usageOf } from "./processes.ts";

const AUDIT = join(CLUSTER_DIR, "log/audit.json");
/** The user whose certificate the pool shows. */
export const POOL_USER = "sandmesh-pool";
export const POOL_KUBECONFIG = join(CLUSTER_DIR, "config/pool.kubeconfig");

const Entry = v.object({
  verb: v.string(),
  user: v.object({ username: v.string() }),
  objectRef: v.optional(
    v.object({ resource: v.optional(v.string(), ""), subresource: v.exactOptional(v.string()) }),
  ),
});
const MUTATING = /^(POST|PUT|PATCH|APPLY|DELETE|DELETECOLLECTION)$/;
const COUNTED = /^(pods|events)$/;

type Counts = Record<string, number>;
const add = (counts: Counts, what: string, more: number): void => {
  counts[what] = (counts[what] ?? 0) + more;
};

/** Mutating requests on pods, their subresources and events so far, by verb and resource: apiserver_request_total. */
async function metrics(): Promise<Counts> {
  const counts: Counts = {};
  for (const line of (await kubectl("get", "--raw", "/metrics")).split("\n")) {
    if (!line.startsWith("apiserver_request_total{")) continue;
    const label = (name: string): string => new RegExp(`[{,]${name}="([^"]*)"`).exec(line)?.[1] ?? "";
    const [verb, resource, subresource] = [label("verb"), label("resource"), label("subresource")];
    if (!MUTATING.test(verb) || !COUNTED.test(resource)) continue;
    const what = `${verb} ${resource}${subresource === "" ? "" : `/${subresource}`}`;
    add(counts, what, Number(line.slice(line.lastIndexOf(" ") + 1)));
  }
  return counts;
}

/** The same since byte `from` of the audit log, by user. */
async function audited(from: number): Promise<{ pool: number; byUser: Counts }> {
  const byUser: Counts = {};
  let pool = 0;
  for (const line of (await Bun.file(AUDIT).slice(from).text()).split("\n")) {
    if (line === "") continue;
    const { verb, user, objectRef } = v.parse(Entry, JSON.parse(line));
    if (user.username === POOL_USER) pool++;
    const resource = [objectRef?.resource, objectRef?.subresource].filter(Boolean).join("/");
    add(byUser, `${user.username} ${verb} ${resource}`, 1);
  }
  return { pool, byUser };
}

/** Process ids of the cluster's programs, by name. */
function clusterPids(): Record<string, number[]> {
  const folder = join(CLUSTER_DIR, "pids");
  return Object.fromEntries(
    readdirSync(folder).map((name) => [
      name,
      [Number(readFileSync(join(folder, name), "utf8").split(" ")[0])],
    ]),
  );
}

/** CPU seconds by program. */
export type Cpu = Record<string, number>;

/** Begins to count the CPU time of the cluster's programs and of these; to be asked before they end. */
export function meter(pids: Record<string, readonly number[]>): () => Cpu {
  const all = Object.entries({ ...clusterPids(), ...pids });
  const before = all.map(([name, of]) => [name, of, usageOf(of).cpuS] as const);
  return () => {
    const spent = before.map(([name, of, cpuS]) => [name, round(usageOf(of).cpuS - cpuS, 2)] as const);
    return Object.fromEntries(spent.filter(([, cpuS]) => cpuS > 0));
  };
}

export interface Writes {
  /** Of the pool's user, by the audit log. */
  ours: number;
  /** Of everybody, by the API server's metrics. */
  all: number;
  byVerb: Counts;
  byUser: Counts;
}

/** Begins to count writes. */
export async function countWrites(): Promise<() => Promise<Writes>> {
  const from = statSync(AUDIT).size;
  const before = await metrics();
  return async () => {
    const byVerb: Counts = {};
    for (const [what, count] of Object.entries(await metrics())) {
      const more = count - (before[what] ?? 0);
      if (more > 0) byVerb[what] = more;
    }
    const { pool, byUser } = await audited(from);
    return { ours: pool, all: Object.values(byVerb).reduce((sum, each) => sum + each, 0), byVerb, byUser };
  };
}
