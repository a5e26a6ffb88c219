// Whether kubelet took a pod that was placed on its node without the scheduler: pure.
import type { PodView } from "../observe.ts";

/** Kubelet's words for what it does not admit: k8s.io/kubernetes pkg/kubelet/lifecycle/predicate.go. */
const REFUSALS =
  /^(OutOf\w+|NodeAffinity|NodeSelectorMismatching|NodeName|NodePorts|HostName|Taint\w*|PodToleratesNodeTaints|UnexpectedAdmissionError|AdmissionError|InvalidNodeInfo|UnknownError|TopologyAffinityError|PodOSSelectorNodeLabelDoesNotMatch|PodOSNotSupported|Unexpected\w*|Preempting)$/;

/** undefined: it has not said yet. */
export function admissionOf({ metadata, status }: PodView): "taken" | "refused" | undefined {
  if (status.phase === "Failed" && REFUSALS.test(status.reason)) return "refused";
  if (metadata.deletionTimestamp !== undefined || status.phase !== "Pending") return "taken";
  return status.containerStatuses.length + status.initContainerStatuses.length > 0 ? "taken" : undefined;
}
