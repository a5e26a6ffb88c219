// Which node takes a pod: pure. The scheduler's filters that matter to sandboxes, and two of its scores.
import type { V1Toleration } from "@kubernetes/client-node";
import * as v from "valibot";
import type { Demand } from "./demand.ts";
import { type Amounts, amountsOf } from "./quantity.ts";

/** What is read of a node. */
export const NodeView = v.object({
  metadata: v.object({
    name: v.string(),
    resourceVersion: v.string(),
    deletionTimestamp: v.exactOptional(v.string()),
    labels: v.optional(v.record(v.string(), v.string()), {}),
  }),
  spec: v.optional(
    v.object({
      unschedulable: v.optional(v.boolean(), false),
      taints: v.optional(
        v.array(v.object({ key: v.string(), value: v.optional(v.string(), ""), effect: v.string() })),
        [],
      ),
    }),
    {},
  ),
  status: v.optional(
    v.object({
      allocatable: v.optional(v.record(v.string(), v.string()), {}),
      conditions: v.optional(v.array(v.object({ type: v.string(), status: v.string() })), []),
      images: v.optional(v.array(v.object({ names: v.nullish(v.array(v.string())) })), []),
    }),
    {},
  ),
});
export type NodeView = v.InferOutput<typeof NodeView>;
type Taint = NodeView["spec"]["taints"][number];

/** A node, read once, and what the pods that are known to be on it have. */
export interface Candidate {
  name: string;
  labels: Readonly<Record<string, string>>;
  taints: readonly Taint[];
  allocatable: Amounts;
  used: Amounts;
  images: ReadonlySet<string>;
}

/** undefined for one that takes no pods: not ready, cordoned, going. */
export function candidateOf({ metadata, spec, status }: NodeView, used: Amounts): Candidate | undefined {
  const ready = status.conditions.some(({ type, status: is }) => type === "Ready" && is === "True");
  if (!ready || spec.unschedulable || metadata.deletionTimestamp !== undefined) return undefined;
  return {
    name: metadata.name,
    labels: metadata.labels,
    taints: spec.taints.filter(({ effect }) => effect !== "PreferNoSchedule"),
    allocatable: amountsOf(status.allocatable),
    used,
    images: new Set(status.images.flatMap(({ names }) => names ?? [])),
  };
}

/** corev1.Toleration.ToleratesTaint. */
function tolerates({ key, operator, value, effect }: V1Toleration, taint: Taint): boolean {
  if (effect !== undefined && effect !== "" && effect !== taint.effect) return false;
  if (key !== undefined && key !== "" && key !== taint.key) return false;
  if (operator === "Exists") return true;
  return key !== undefined && key !== "" && (value ?? "") === taint.value;
}

const fits = ({ allocatable, used }: Candidate, requests: Amounts): boolean =>
  Object.entries(requests).every(
    ([name, amount]) => amount === 0 || (used[name] ?? 0) + amount <= (allocatable[name] ?? 0),
  );

/** 0 to 1: how full its fullest resource would be. */
const fullness = ({ allocatable, used }: Candidate, requests: Amounts): number =>
  Math.max(
    ...Object.entries(requests).map(([name, amount]) =>
      amount === 0 ? 0 : ((used[name] ?? 0) + amount) / (allocatable[name] ?? 1),
    ),
  );

/** How much emptier a node without the image must be to be preferred: a pull costs more than neighbours do. */
const IMAGE_WORTH = 0.5;

/** The emptiest that takes it, those that have its images first; undefined where none does. */
export function choose(candidates: Iterable<Candidate>, demand: Demand): Candidate | undefined {
  let best: { candidate: Candidate; cost: number } | undefined;
  for (const candidate of candidates) {
    const { labels, taints, images } = candidate;
    const taken =
      Object.entries(demand.selector).every(([key, value]) => labels[key] === value) &&
      taints.every((taint) => demand.tolerations.some((toleration) => tolerates(toleration, taint))) &&
      fits(candidate, demand.requests);
    if (!taken) continue;
    const missing = demand.images.filter((image) => !images.has(image)).length;
    const cost = fullness(candidate, demand.requests) + IMAGE_WORTH * missing;
    if (best === undefined || cost < best.cost) best = { candidate, cost };
  }
  return best?.candidate;
}
