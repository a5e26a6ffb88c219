// What a pod needs of a node, as far as this placement understands it. Pure.
import type { V1Container, V1Pod, V1Toleration } from "@kubernetes/client-node";
import { type Amounts, amountsOf, plus } from "./quantity.ts";

export interface Demand {
  requests: Amounts;
  selector: Readonly<Record<string, string>>;
  tolerations: readonly V1Toleration[];
  images: readonly string[];
}

/** undefined: something in it only the scheduler can see to (affinity, spreading, volumes that are bound to places, another
 * scheduler, a runtime's overhead, ports of the node). */
export function demandOf({ spec }: V1Pod): Demand | undefined {
  if (spec === undefined || spec.nodeName !== undefined) return undefined;
  const beyond =
    spec.affinity !== undefined ||
    (spec.topologySpreadConstraints ?? []).length > 0 ||
    (spec.resourceClaims ?? []).length > 0 ||
    (spec.schedulingGates ?? []).length > 0 ||
    spec.schedulerName !== undefined ||
    spec.runtimeClassName !== undefined ||
    spec.hostNetwork === true ||
    (spec.volumes ?? []).some((volume) => volume.persistentVolumeClaim != null || volume.ephemeral != null);
  if (beyond) return undefined;
  return {
    requests: plus(requestsOf(spec.containers, spec.initContainers ?? []), { pods: 1 }),
    selector: spec.nodeSelector ?? {},
    tolerations: spec.tolerations ?? [],
    images: spec.containers.flatMap(({ image }) => (image === undefined ? [] : [image])),
  };
}

/** As the scheduler counts: what runs all the time is added up; a step before it needs its own at most. */
function requestsOf(containers: readonly V1Container[], initial: readonly V1Container[]): Amounts {
  const of = ({ resources }: V1Container): Amounts =>
    amountsOf({ ...resources?.limits, ...resources?.requests });
  const lasting = initial.filter(({ restartPolicy }) => restartPolicy === "Always");
  const sum = [...containers, ...lasting].map(of).reduce(plus, {});
  const peak: Record<string, number> = { ...sum };
  for (const step of initial.filter((each) => each.restartPolicy !== "Always").map(of)) {
    for (const [name, amount] of Object.entries(step)) peak[name] = Math.max(peak[name] ?? 0, amount);
  }
  return peak;
}
