import { describe, expect, test } from "bun:test";
import { quickCheck, UNSURE } from "../../../broker/contract/quick-check.ts";
import { judge, listedOf, lossOfGone, PodView } from "./observe.ts";
import { podView } from "./testing.ts";

const container = (state: object, name = "sandbox") => ({ containerStatuses: [{ name, state }] });
const waiting = (reason: string, message = "") => container({ waiting: { reason, message } });
const condition = (type: string, status: string, reason: string, message = "") => ({
  conditions: [{ type, status, reason, message }],
});
const deletionTimestamp = "2026-01-01T00:00:00Z";

describe("what fails before it runs", () => {
  test("no node takes it: it may pass, an autoscaler may be at work; the scheduler's text is kept", () => {
    const said = "0/3 nodes are available: 3 Insufficient cpu.";
    const verdict = judge(podView({ status: condition("PodScheduled", "False", "Unschedulable", said) }));
    expect(verdict).toMatchObject({
      type: "trouble",
      patience: "unschedulable",
      code: "boot_failed",
      reason: "unschedulable",
    });
    expect(verdict).toHaveProperty("message", `no node takes it: ${said}`);
  });

  test("a gate that holds the scheduler back is no trouble", () => {
    expect(judge(podView({ status: condition("PodScheduled", "False", "SchedulingGated") }))).toEqual({
      type: "starting",
    });
  });

  test("an image that is not there or not allowed fails at once, with the runtime's text", () => {
    for (const text of [
      "failed to resolve reference: not found",
      "pull access denied, repository does not exist",
      "401 Unauthorized",
      "no match for platform in manifest",
    ]) {
      const verdict = judge(podView({ status: waiting("ErrImagePull", text) }));
      expect(verdict).toMatchObject({ type: "trouble", patience: "none", code: "image_error" });
      expect(verdict).toHaveProperty("message", `container sandbox: ErrImagePull: ${text}`);
    }
    for (const reason of ["InvalidImageName", "ErrImageNeverPull"]) {
      expect(judge(podView({ status: waiting(reason) }))).toMatchObject({ patience: "none" });
    }
  });

  test("a pull that may be the network's fault is left to be retried", () => {
    for (const reason of ["ErrImagePull", "ImagePullBackOff"]) {
      const verdict = judge(podView({ status: waiting(reason, "dial tcp: i/o timeout") }));
      expect(verdict).toMatchObject({ type: "trouble", patience: "image", code: "image_error" });
    }
  });

  test("the image of a sidecar or of the daemon's copy counts as well", () => {
    const state = { waiting: { reason: "ErrImagePull", message: "not found" } };
    const verdict = judge(podView({ status: { initContainerStatuses: [{ name: "proxy", state }] } }));
    expect(verdict).toMatchObject({
      code: "image_error",
      message: "container proxy: ErrImagePull: not found",
    });
  });

  test("a container that the runtime refuses fails at once", () => {
    for (const reason of ["CreateContainerError", "RunContainerError", "CreateContainerConfigError"]) {
      expect(judge(podView({ status: waiting(reason, "no such directory") }))).toMatchObject({
        type: "trouble",
        patience: "none",
        code: "boot_failed",
        reason: "exited",
      });
    }
  });

  test("a pod that kubelet refused never ran: it failed, and is not lost", () => {
    const status = { phase: "Failed", reason: "OutOfcpu", message: "Node didn't have enough resource" };
    const verdict = judge(podView({ status }));
    expect(verdict).toMatchObject({ type: "trouble", patience: "none", code: "boot_failed" });
    expect(verdict).toHaveProperty("message", expect.stringContaining("OutOfcpu: Node didn't have enough"));
  });
});

describe("what ran and is lost", () => {
  const ended = (more: object) => ({
    phase: "Failed",
    ...container({ terminated: { exitCode: 137, startedAt: "2026-01-01T00:00:00Z", ...more } }),
  });
  const reasonOf = (status: object, metadata: object = {}) => {
    const verdict = judge(podView({ status, metadata }));
    return verdict.type === "lost" ? verdict.reason : verdict.type;
  };

  test("memory, the daemon's own end, and its exit code in words", () => {
    expect(reasonOf(ended({ reason: "OOMKilled" }))).toBe("oom");
    expect(reasonOf(ended({ reason: "Error" }))).toBe("daemon_died");
    const verdict = judge(podView({ status: ended({ reason: "Error", exitCode: 3 }) }));
    expect(verdict).toHaveProperty("message", "its daemon ended with 3 (Error)");
  });

  test("a daemon that ended well is as dead as one that crashed", () => {
    const done = ended({ exitCode: 0, reason: "Completed" });
    expect(reasonOf({ ...done, phase: "Succeeded" })).toBe("daemon_died");
  });

  test("evicted by kubelet, drained, preempted, taken from a lost node: each by its own name", () => {
    expect(reasonOf({ phase: "Failed", reason: "Evicted", message: "low on memory" })).toBe("evicted");
    const by = (reason: string) =>
      reasonOf({ phase: "Running", ...condition("DisruptionTarget", "True", reason) }, { deletionTimestamp });
    expect(by("EvictionByEvictionAPI")).toBe("evicted");
    expect(by("PreemptionByScheduler")).toBe("evicted");
    expect(by("TerminationByKubelet")).toBe("evicted");
    expect(by("DeletionByTaintManager")).toBe("node_lost");
    expect(by("DeletionByPodGC")).toBe("node_lost");
    expect(reasonOf({ phase: "Failed", reason: "NodeLost" })).toBe("node_lost");
  });

  test("a disruption that was called off is none", () => {
    const status = {
      phase: "Running",
      ...container({ running: {} }),
      ...condition("DisruptionTarget", "False", "PreemptionByScheduler"),
    };
    expect(reasonOf(status)).toBe("running");
  });

  test("its longest life, and somebody else's delete", () => {
    expect(reasonOf({ phase: "Failed", reason: "DeadlineExceeded" })).toBe("deleted");
    expect(reasonOf({ phase: "Running", ...container({ running: {} }) }, { deletionTimestamp })).toBe(
      "deleted",
    );
    expect(lossOfGone(podView({ status: { phase: "Running" } })).reason).toBe("deleted");
  });

  test("a sidecar that ended is not the sandbox's end", () => {
    const statuses = [
      { name: "sandbox", state: { running: {} } },
      { name: "proxy", state: { terminated: { exitCode: 1 } } },
    ];
    expect(reasonOf({ phase: "Running", containerStatuses: statuses })).toBe("running");
  });
});

test("fields that are null, missing or newer than we know do not blind us", () => {
  const odd = podView({
    status: {
      phase: "Running",
      containerStatuses: [{ name: "sandbox", state: { running: null, waiting: null, terminated: null } }],
      somethingNew: { a: 1 },
    },
  });
  expect(judge(odd)).toEqual({ type: "starting" });
  expect(judge(podView({ status: { phase: "Running" } }))).toEqual({ type: "running" });
});

test("the list says which are on their way out, so that nobody takes them for alive", () => {
  const labels = { "sandmesh.dev/tenant": "acme" };
  const running = { phase: "Running", ...container({ running: {} }) };
  expect(listedOf(podView({ metadata: { labels }, status: running }))).toEqual({
    sandbox: "sb-1",
    tenant: "acme",
    uid: "uid-1",
    phase: "running",
  });
  expect(listedOf(podView({ metadata: { labels, deletionTimestamp }, status: running }))).toMatchObject({
    phase: "failed",
    reason: "removing",
  });
  expect(listedOf(podView({ status: waiting("ErrImagePull", "timeout") })).phase).toBe("starting");
  expect(listedOf(podView({ status: waiting("ErrImagePull", "not found") })).phase).toBe("failed");
});

test("the quick check is sure of a pod's view, or each of a burst's events would be checked slowly", () => {
  const status = {
    phase: "Running",
    conditions: [{ type: "Ready", status: "True", lastTransitionTime: null }],
    containerStatuses: [
      { name: "sandbox", ready: true, state: { running: { startedAt: deletionTimestamp } } },
    ],
  };
  for (const view of [podView({ status }), podView({ status: container({ terminated: { exitCode: 1 } }) })]) {
    const { spec, ...unplaced } = view;
    for (const pod of [view, unplaced, { ...view, spec: { nodeName: "a", containers: [] } }]) {
      expect(quickCheck(PodView, pod)).not.toBe(UNSURE);
    }
  }
});
