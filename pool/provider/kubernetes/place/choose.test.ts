import { expect, test } from "bun:test";
import type { V1Pod } from "@kubernetes/client-node";
import * as v from "valibot";
import { type Candidate, candidateOf, choose, NodeView } from "./choose.ts";
import { type Demand, demandOf } from "./demand.ts";

const node = (name: string, more: object = {}) =>
  v.parse(NodeView, {
    metadata: { name, resourceVersion: "1", labels: { pool: "fast" } },
    status: {
      allocatable: { cpu: "4", memory: "8Gi", pods: "10" },
      conditions: [{ type: "Ready", status: "True" }],
      images: [{ names: ["task:1"] }],
    },
    ...more,
  });
const candidate = (name: string, used: Record<string, number> = {}, more: object = {}): Candidate => {
  const made = candidateOf(node(name, more), used);
  if (made === undefined) throw new Error("it takes no pods");
  return made;
};
const demand = (more: Partial<Demand> = {}): Demand => ({
  requests: { cpu: 1, pods: 1 },
  selector: {},
  tolerations: [],
  images: ["task:1"],
  ...more,
});

test("the emptiest of those that fit takes it", () => {
  const nodes = [candidate("a", { cpu: 3 }), candidate("b", { cpu: 1 }), candidate("c", { cpu: 2 })];
  expect(choose(nodes, demand())?.name).toBe("b");
});

test("none takes it where each resource of one is short: cpu, pods, or one that the node does not have", () => {
  expect(choose([candidate("a", { cpu: 3.5 })], demand())).toBeUndefined();
  expect(choose([candidate("a", { pods: 10 })], demand())).toBeUndefined();
  expect(choose([candidate("a")], demand({ requests: { "nvidia.com/gpu": 1 } }))).toBeUndefined();
  expect(choose([candidate("a")], demand({ requests: { "nvidia.com/gpu": 0 } }))?.name).toBe("a");
  expect(choose([candidate("a", { cpu: 3, pods: 9 })], demand())?.name).toBe("a");
});

test("a node that is not ready, cordoned or going takes none", () => {
  const notReady = { status: { conditions: [{ type: "Ready", status: "Unknown" }] } };
  expect(candidateOf(node("a", notReady), {})).toBeUndefined();
  expect(candidateOf(node("a", { spec: { unschedulable: true } }), {})).toBeUndefined();
  const going = { metadata: { name: "a", resourceVersion: "1", deletionTimestamp: "2026-01-01T00:00:00Z" } };
  expect(candidateOf(node("a", going), {})).toBeUndefined();
});

test("a tainted node takes only what tolerates it, by key, value and effect", () => {
  const taint = (effect: string) => ({ spec: { taints: [{ key: "gpu", value: "yes", effect }] } });
  const tainted = [candidate("a", {}, taint("NoSchedule"))];
  expect(choose(tainted, demand())).toBeUndefined();
  const by = (toleration: object) => choose(tainted, demand({ tolerations: [toleration] }))?.name;
  expect(by({ key: "gpu", operator: "Exists" })).toBe("a");
  expect(by({ key: "gpu", value: "yes" })).toBe("a");
  expect(by({ operator: "Exists" })).toBe("a");
  expect(by({ key: "gpu", value: "no" })).toBeUndefined();
  expect(by({ key: "other", operator: "Exists" })).toBeUndefined();
  expect(by({ key: "gpu", operator: "Exists", effect: "NoExecute" })).toBeUndefined();
  expect(choose([candidate("a", {}, taint("PreferNoSchedule"))], demand())?.name).toBe("a");
});

test("a selector that a node does not match keeps it out", () => {
  expect(choose([candidate("a")], demand({ selector: { pool: "slow" } }))).toBeUndefined();
  expect(choose([candidate("a")], demand({ selector: { pool: "fast" } }))?.name).toBe("a");
});

test("a node that has the image is preferred, unless it is far fuller", () => {
  const without = { status: { ...node("x").status, images: [] } };
  const pair = (used: number) => [candidate("has", { cpu: used }), candidate("empty", {}, without)];
  expect(choose(pair(1), demand())?.name).toBe("has");
  expect(choose(pair(3), demand())?.name).toBe("empty");
});

const pod = (spec: object): V1Pod => ({
  spec: { containers: [{ name: "sandbox", image: "task:1" }], ...spec },
});

test("what only the scheduler can see to is left to it", () => {
  expect(demandOf(pod({}))).toBeDefined();
  const beyond: object[] = [
    { affinity: {} },
    { topologySpreadConstraints: [{}] },
    { schedulerName: "other" },
    { runtimeClassName: "gvisor" },
    { hostNetwork: true },
    { volumes: [{ name: "d", persistentVolumeClaim: { claimName: "x" } }] },
    { resourceClaims: [{ name: "gpu" }] },
    { nodeName: "a" },
  ];
  for (const spec of beyond) expect(demandOf(pod(spec))).toBeUndefined();
});

test("requests are those of all that runs at once, limits where there are none, and of a step before only if larger", () => {
  const resources = (cpu: string) => ({ resources: { requests: { cpu } } });
  const found = demandOf(
    pod({
      containers: [
        { name: "sandbox", resources: { limits: { cpu: "2", memory: "1Gi" }, requests: { cpu: "500m" } } },
      ],
      initContainers: [
        { name: "proxy", restartPolicy: "Always", ...resources("250m") },
        { name: "copy", ...resources("1") },
      ],
    }),
  );
  expect(found?.requests).toEqual({ cpu: 1, memory: 2 ** 30, pods: 1 });
});
