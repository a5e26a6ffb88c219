// What a pod's status means: pure. Only the fields that are needed are read; what is newer than we know passes.
import * as v from "valibot";
import type { Listed, ProviderEvent } from "../provider.ts";
import { LABEL, MAIN_CONTAINER } from "./pod.ts";

const Terminated = v.object({
  exitCode: v.optional(v.number(), 0),
  reason: v.optional(v.string(), ""),
  message: v.optional(v.string(), ""),
  startedAt: v.nullish(v.string()),
});
const Waiting = v.object({ reason: v.optional(v.string(), ""), message: v.optional(v.string(), "") });
const ContainerStatus = v.object({
  name: v.string(),
  state: v.optional(
    v.object({
      waiting: v.nullish(Waiting),
      running: v.nullish(v.object({ startedAt: v.nullish(v.string()) })),
      terminated: v.nullish(Terminated),
    }),
    {},
  ),
});
const Condition = v.object({
  type: v.string(),
  status: v.string(),
  reason: v.optional(v.string(), ""),
  message: v.optional(v.string(), ""),
});

/** What is read of a pod. */
export const PodView = v.object({
  metadata: v.object({
    name: v.string(),
    uid: v.string(),
    resourceVersion: v.string(),
    deletionTimestamp: v.exactOptional(v.string()),
    labels: v.optional(v.record(v.string(), v.string()), {}),
  }),
  spec: v.optional(v.object({ nodeName: v.exactOptional(v.string()) }), {}),
  status: v.optional(
    v.object({
      phase: v.optional(v.string(), "Pending"),
      reason: v.optional(v.string(), ""),
      message: v.optional(v.string(), ""),
      conditions: v.optional(v.array(Condition), []),
      initContainerStatuses: v.optional(v.array(ContainerStatus), []),
      containerStatuses: v.optional(v.array(ContainerStatus), []),
    }),
    {},
  ),
});
export type PodView = v.InferOutput<typeof PodView>;

type Failed = Extract<ProviderEvent, { type: "failed" }>;
type Lost = Extract<ProviderEvent, { type: "lost" }>;

/** What is to be told of a pod as it stands. `trouble`: it may pass; it is told when it has lasted for its patience. */
export type Verdict =
  | { type: "starting" | "running" }
  | ({ type: "trouble"; patience: "none" | "image" | "unschedulable" } & Pick<
      Failed,
      "code" | "reason" | "message"
    >)
  | ({ type: "lost" } & Pick<Lost, "reason" | "message">);

const conditionOf = (pod: PodView, type: string) => pod.status.conditions.find((each) => each.type === type);
const mainOf = (pod: PodView) => pod.status.containerStatuses.find(({ name }) => name === MAIN_CONTAINER);

/** Whoever ended it with a word of why: the taint manager (its node is gone), an eviction, a preemption, kubelet. */
const DISRUPTIONS: Record<string, Lost["reason"]> = {
  DeletionByTaintManager: "node_lost",
  DeletionByPodGC: "node_lost",
  EvictionByEvictionAPI: "evicted",
  PreemptionByScheduler: "evicted",
  PreemptionByKubeScheduler: "evicted",
  TerminationByKubelet: "evicted",
};

/** Why a pod that is there, or was, is lost. */
function lossOf(pod: PodView): Pick<Lost, "reason" | "message"> {
  const { reason, message } = pod.status;
  const disruption = conditionOf(pod, "DisruptionTarget");
  if (disruption?.status === "True") {
    const known = DISRUPTIONS[disruption.reason] ?? "evicted";
    return { reason: known, message: `${disruption.reason}: ${disruption.message}` };
  }
  if (reason === "Evicted" || reason === "Preempting") return { reason: "evicted", message };
  if (reason === "NodeLost" || reason === "NodeShutdown" || reason === "Terminated") {
    return { reason: "node_lost", message: `${reason}: ${message}` };
  }
  if (reason === "DeadlineExceeded") return { reason: "deleted", message: "its longest life is over" };
  const ended = mainOf(pod)?.state.terminated;
  if (ended?.reason === "OOMKilled") {
    return { reason: "oom", message: "the sandbox ran out of its memory limit, and its daemon was killed" };
  }
  if (pod.status.phase === "Failed" || pod.status.phase === "Succeeded" || ended != null) {
    const how = ended == null ? reason : `with ${ended.exitCode} (${ended.reason}) ${ended.message}`;
    return { reason: "daemon_died", message: `its daemon ended ${how}`.trim() };
  }
  return { reason: "deleted", message: "somebody else deleted the pod" };
}

/** The pod is no more, by no doing of ours. */
export const lossOfGone = (last: PodView): Pick<Lost, "reason" | "message"> => lossOf(last);

/** A pull's failure that no repetition cures. */
const FINAL =
  /not found|manifest unknown|does not exist|denied|unauthorized|authorization failed|no match for platform/i;
const IMAGE_REASONS = new Set(
  "ErrImagePull ImagePullBackOff ImageInspectError InvalidImageName ErrImageNeverPull RegistryUnavailable SignatureValidationFailed".split(
    " ",
  ),
);
/** The runtime refused the container: a working folder that cannot be, a program that is not there. */
const CONTAINER_REASONS = new Set(
  "CreateContainerError CreateContainerConfigError RunContainerError CrashLoopBackOff PreCreateHookError".split(
    " ",
  ),
);

function troubleOf(pod: PodView): Verdict | undefined {
  for (const { name, state } of [...pod.status.initContainerStatuses, ...pod.status.containerStatuses]) {
    const { reason = "", message = "" } = state.waiting ?? {};
    const said = `container ${name}: ${reason}: ${message}`;
    if (IMAGE_REASONS.has(reason)) {
      const final = reason === "InvalidImageName" || reason === "ErrImageNeverPull" || FINAL.test(message);
      const patience = final ? "none" : "image";
      return { type: "trouble", patience, code: "image_error", reason: "image", message: said };
    }
    if (CONTAINER_REASONS.has(reason)) {
      return { type: "trouble", patience: "none", code: "boot_failed", reason: "exited", message: said };
    }
  }
  const scheduled = conditionOf(pod, "PodScheduled");
  if (scheduled?.status === "False" && scheduled.reason === "Unschedulable") {
    const message = `no node takes it: ${scheduled.message}`;
    return {
      type: "trouble",
      patience: "unschedulable",
      code: "boot_failed",
      reason: "unschedulable",
      message,
    };
  }
  return undefined;
}

/** What to tell of a pod as it stands. */
export function judge(pod: PodView): Verdict {
  const { phase, reason } = pod.status;
  const main = mainOf(pod);
  const over = phase === "Failed" || phase === "Succeeded" || main?.state.terminated != null;
  if (over) {
    const loss = lossOf(pod);
    // It never ran: kubelet refused it (out of memory, of pods), or the runtime could not start it.
    if (main?.state.terminated?.startedAt == null && loss.reason === "daemon_died") {
      const why = [reason, pod.status.message, loss.message].filter(Boolean).join(": ");
      return { type: "trouble", patience: "none", code: "boot_failed", reason: "exited", message: why };
    }
    return { type: "lost", ...loss };
  }
  if (pod.metadata.deletionTimestamp !== undefined) return { type: "lost", ...lossOf(pod) };
  if (main?.state.running != null || (phase === "Running" && main === undefined)) return { type: "running" };
  return troubleOf(pod) ?? { type: "starting" };
}

/** As `list` answers it. */
export function listedOf(pod: PodView): Listed {
  const { name: sandbox, uid, labels, deletionTimestamp } = pod.metadata;
  const entry = { sandbox, tenant: labels[LABEL.tenant] ?? "", uid };
  const verdict = judge(pod);
  if (deletionTimestamp !== undefined) return { ...entry, phase: "failed", reason: "removing" };
  if (verdict.type === "lost") return { ...entry, phase: "failed", reason: verdict.reason };
  if (verdict.type === "trouble" && verdict.patience === "none") {
    return { ...entry, phase: "failed", reason: verdict.message };
  }
  return { ...entry, phase: verdict.type === "running" ? "running" : "starting" };
}
