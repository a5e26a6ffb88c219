// Direct placement on a real API server: without the scheduler where a node of ours takes the pod, by it where none does.
import { expect, setDefaultTimeout } from "bun:test";
import { randomName } from "../../../broker/contract/index.ts";
import { until } from "../../../broker/server/testing.ts";
import { needing } from "../needs.ts";
import { apply, kubectl, Place } from "./cluster.ts";

setDefaultTimeout(90_000);

/** A node whose kubelet is the test. */
async function ghostNode(label: string) {
  const name = `ghost-${randomName(6)}`;
  const amounts = { cpu: "64", memory: "512Gi", pods: "500", "ephemeral-storage": "1Ti" };
  const at = new Date().toISOString();
  const ready = {
    type: "Ready",
    status: "True",
    reason: "Test",
    lastHeartbeatTime: at,
    lastTransitionTime: at,
  };
  await apply({
    apiVersion: "v1",
    kind: "Node",
    metadata: { name, labels: { [label]: "yes", type: "kwok" } },
    status: { allocatable: amounts, capacity: amounts, conditions: [ready] },
  });
  const taints = () => kubectl(["get", "node", name, "-o", "jsonpath={.spec.taints}"]);
  await until("the node to be taken for ready", async () => (await taints()) === "", 30_000);
  return { name, remove: () => kubectl(["delete", "node", name]) };
}

const bound = "{.status.conditions[?(@.type=='PodScheduled')].reason}{.spec.nodeName}";

needing("kwok")(
  "a pod is on its node from the start: there is no binding, and no event of the scheduler",
  async () => {
    const label = `sandmesh.test/${randomName(6)}`;
    await kubectl(["label", "node", "kwok-0", `${label}=yes`]);
    try {
      await using place = await Place.open({ placement: "direct", directNodes: `${label}=yes` });
      const sandbox = await place.createRunning({ cpu: 1 });
      expect(await place.pod(sandbox, bound)).toBe("kwok-0");
      const events = await kubectl(["-n", place.namespace, "get", "events", "-o", "name"]);
      expect(events).toBe("");
    } finally {
      await kubectl(["label", "node", "kwok-0", `${label}-`]);
    }
  },
);

needing("kwok")("where no labelled node has room, the scheduler finds one", async () => {
  const label = `sandmesh.test/${randomName(6)}`;
  await kubectl(["label", "node", "kwok-0", `${label}=yes`]);
  try {
    await using place = await Place.open({ placement: "direct", directNodes: `${label}=yes` });
    const first = await place.createRunning({ cpu: 40 });
    const second = await place.createRunning({ cpu: 40 });
    expect(await place.pod(first, "{.spec.nodeName}")).toBe("kwok-0");
    expect(await place.pod(second, "{.spec.nodeName}")).not.toBe("kwok-0");
    // What is gone has left its room.
    await place.provider.remove(first, undefined, AbortSignal.timeout(60_000));
    const third = await place.createRunning({ cpu: 40 });
    expect(await place.pod(third, "{.spec.nodeName}")).toBe("kwok-0");
  } finally {
    await kubectl(["label", "node", "kwok-0", `${label}-`]);
  }
});

needing("kwok")(
  "a pod that its node refuses is made again by the scheduler, and nobody hears of the first",
  async () => {
    const label = `sandmesh.test/${randomName(6)}`;
    const node = await ghostNode(label);
    try {
      await using place = await Place.open({ placement: "direct", directNodes: `${label}=yes` });
      const request = place.request({ cpu: 1 });
      const { sandbox } = request;
      const creating = place.provider.create(request, AbortSignal.timeout(60_000));
      const placed = () => place.pod(sandbox, "{.spec.nodeName}").catch(() => "");
      await until("the pod to be on the node", async () => (await placed()) === node.name, 30_000);
      const first = await place.pod(sandbox, "{.metadata.uid}");
      const refusal = {
        status: { phase: "Failed", reason: "OutOfcpu", message: "Node didn't have enough resource" },
      };
      const patch = [
        "patch",
        "pod",
        sandbox,
        "--subresource=status",
        "--type=merge",
        "-p",
        JSON.stringify(refusal),
      ];
      // So that the scheduler does not choose it.
      await kubectl(["cordon", node.name]);
      await kubectl(["-n", place.namespace, ...patch]);
      const { uid } = await creating;
      expect(uid).not.toBe(first);
      await place.hears(sandbox, "running");
      expect(await place.pod(sandbox, "{.spec.nodeName}")).toStartWith("kwok-");
      expect(place.told.map(({ type }) => type)).toEqual(["running"]);
    } finally {
      await node.remove();
    }
  },
);

needing("kwok")("a pod whose node says nothing is removed at once when it is given up", async () => {
  const label = `sandmesh.test/${randomName(6)}`;
  const node = await ghostNode(label);
  try {
    await using place = await Place.open({
      placement: "direct",
      directNodes: `${label}=yes`,
      forceAfterMs: 500,
    });
    const request = place.request();
    const stop = new AbortController();
    const creating = place.provider
      .create(request, stop.signal)
      .catch((error: { code: string }) => error.code);
    const there = () => place.pod(request.sandbox, "{.spec.nodeName}").catch(() => "");
    await until("the pod to be on the node", async () => (await there()) === node.name, 30_000);
    stop.abort();
    expect(await creating).toBe("canceled");
    await place.provider.remove(request.sandbox, undefined, AbortSignal.timeout(60_000));
    expect(await place.provider.list(AbortSignal.timeout(30_000))).toEqual([]);
  } finally {
    await node.remove();
  }
});
