// What goes wrong, as a real API server, scheduler and controllers tell of it: each a typed error or state, in time.
import { expect, setDefaultTimeout, test } from "bun:test";
import { ProviderError, QuotaExceededError, UnsupportedError } from "../../../broker/contract/index.ts";
import { until } from "../../../broker/server/testing.ts";
import type { Provider, Removed } from "../../../pool/provider/provider.ts";
import { beside } from "../../../pool/testing/errors.ts";
import { needing } from "../needs.ts";
import { frozen } from "../programs.ts";
import { apply, kubectl, Place } from "./cluster.ts";

setDefaultTimeout(90_000);
const soon = () => AbortSignal.timeout(60_000);

const thrown = async (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => "nothing was thrown",
    (error: unknown) => error,
  );

const ofAnyUid = (sandbox: string) => ({ sandbox, uid: undefined });

/** All of them by removeMany. */
async function together(provider: Provider, all: readonly Removed[], signal: AbortSignal): Promise<void> {
  await Promise.all(provider.removeMany?.(all, signal) ?? []);
}

test("a quota that is used up refuses the create at once, and leaves room again with the removal", async () => {
  await using place = await Place.open();
  const { namespace, provider } = place;
  const spec = { hard: { pods: "1" } };
  await apply({ apiVersion: "v1", kind: "ResourceQuota", metadata: { name: "q", namespace }, spec });
  const counted = () => kubectl(["-n", namespace, "get", "quota", "q", "-o", "jsonpath={.status.hard.pods}"]);
  await until("the quota to count", async () => (await counted()) === "1", 20_000);
  const first = await place.create();
  expect(await thrown(place.create())).toBeInstanceOf(QuotaExceededError);
  await provider.remove(first, undefined, soon());
  const used = () => kubectl(["-n", namespace, "get", "quota", "q", "-o", "jsonpath={.status.used.pods}"]);
  await until("the quota to be free", async () => (await used()) === "0", 20_000);
  await place.create();
});

/** A pod's requests as the API server has taken them; or why it has not. */
async function requestsIn(place: Place, spec: object = {}): Promise<unknown> {
  const made = await place.create(spec).catch((error: unknown) => error);
  if (typeof made !== "string") return made;
  return JSON.parse(await place.pod(made, "{.spec.containers[0].resources.requests}"));
}

test("a quota of cpu and memory takes what names neither, and asks for both where nothing is requested by default", async () => {
  const spec = { hard: { "requests.cpu": "1", "requests.memory": "1Gi" } };
  const daemon = { by: "init" as const, image: "simulated" };
  const sidecars = [{ name: "proxy", image: "simulated" }];
  for (const [byDefault, expected] of [
    [{}, { cpu: "20m", memory: "33554432" }],
    [{ cpu: 0, memoryBytes: 0 }, expect.any(Error)],
  ] as const) {
    await using place = await Place.open({ daemon, defaultRequests: byDefault });
    const { namespace } = place;
    await apply({ apiVersion: "v1", kind: "ResourceQuota", metadata: { name: "q", namespace }, spec });
    const counted = () => kubectl(["-n", namespace, "get", "quota", "q", "-o", "jsonpath={.status.hard}"]);
    await until("the quota to count", async () => (await counted()).includes("requests.cpu"), 20_000);
    expect(await requestsIn(place, { sidecars })).toEqual(expected);
  }
});

test("a namespace's LimitRange decides where nothing is requested by default, and only there", async () => {
  const limits = [{ type: "Container", defaultRequest: { cpu: "100m", memory: "64Mi" } }];
  for (const [defaultRequests, expected] of [
    [{}, { cpu: "20m", memory: "33554432" }],
    [{ cpu: 0 }, { cpu: "100m", memory: "33554432" }],
    [
      { cpu: 0, memoryBytes: 0 },
      { cpu: "100m", memory: "64Mi" },
    ],
  ] as const) {
    await using place = await Place.open({ defaultRequests });
    const metadata = { name: "l", namespace: place.namespace };
    await apply({ apiVersion: "v1", kind: "LimitRange", metadata, spec: { limits } });
    expect(await requestsIn(place)).toEqual(expected);
  }
});

needing("kwok")("Pod Security: what each level takes is said by its refusal", async () => {
  const enforce = (level: string) => ({ "pod-security.kubernetes.io/enforce": level });
  const hostPath = { daemon: { by: "hostPath" as const, path: "/daemon" } };
  {
    await using place = await Place.open(hostPath, enforce("baseline"));
    const error = await thrown(place.create());
    expect(error).toBeInstanceOf(UnsupportedError);
    expect(error).toMatchObject({ reason: "admission_denied" });
    expect(String(error)).toContain("hostPath volumes");
  }
  {
    await using place = await Place.open(hostPath, enforce("privileged"));
    await place.createRunning();
  }
  {
    await using place = await Place.open({}, enforce("baseline"));
    await place.createRunning();
  }
  {
    await using place = await Place.open({}, enforce("restricted"));
    expect(String(await thrown(place.create()))).toContain("unrestricted capabilities");
  }
  {
    const strict = { capabilities: "strict" as const, runAsNonRoot: true };
    const daemon = { by: "init" as const, image: "simulated" };
    await using place = await Place.open({ ...strict, daemon }, enforce("restricted"));
    await place.create();
  }
});

test("a sandbox that no node takes fails with the scheduler's own words, after its patience", async () => {
  await using place = await Place.open({
    unschedulableMs: 500,
    nodeSelector: { "sandmesh.test/no": "where" },
  });
  const { code, reason, message } = await place.hears(await place.create(), "failed");
  expect({ code, reason }).toEqual({ code: "boot_failed", reason: "unschedulable" });
  expect(message).toContain("nodes are available");
});

needing("kwok")("a pod that is evicted, preempted or deleted by others is lost by that name", async () => {
  await using place = await Place.open();
  const { namespace } = place;
  const evicted = await place.createRunning();
  const eviction = { apiVersion: "policy/v1", kind: "Eviction", metadata: { name: evicted, namespace } };
  const path = `/api/v1/namespaces/${namespace}/pods/${evicted}/eviction`;
  await kubectl(["create", "--raw", path, "-f", "-"], JSON.stringify(eviction));
  expect((await place.hears(evicted, "lost")).reason).toBe("evicted");
  const deleted = await place.createRunning();
  await kubectl(["-n", namespace, "delete", "pod", deleted, "--wait=false"]);
  expect((await place.hears(deleted, "lost")).reason).toBe("deleted");
});

needing("kwok")(
  "a pod that makes way for a more important one is lost as evicted, with the scheduler's word",
  async () => {
    const node = { "kubernetes.io/hostname": "kwok-0" };
    await using place = await Place.open({ nodeSelector: node });
    const sandbox = await place.createRunning({ cpu: 40 });
    const name = `urgent-${place.namespace}`;
    const kind = "PriorityClass";
    await apply({ apiVersion: "scheduling.k8s.io/v1", kind, metadata: { name }, value: 1000 });
    try {
      await using urgent = await Place.open({ nodeSelector: node, priorityClass: name });
      await urgent.createRunning({ cpu: 40 });
      const { reason, message } = await place.hears(sandbox, "lost");
      expect(reason).toBe("evicted");
      expect(message).toContain("Preempt");
    } finally {
      await kubectl(["delete", "priorityclass", name]);
    }
  },
);

needing("programs", "kwok")(
  "a pod of a node that does not answer is removed by force after the stated time, and the removal is true",
  async () => {
    await using place = await Place.open({ forceAfterMs: 1_000 });
    const sandbox = await place.createRunning();
    // With KWOK stopped nobody ends the pods of its nodes.
    await frozen("kwok", () => place.provider.remove(sandbox, undefined, soon()));
    expect(await place.provider.list(soon())).toEqual([]);
  },
);

needing("programs", "kwok")(
  "a pod that a finalizer holds is told as stuck, and goes once that is gone",
  async () => {
    const podTemplate = { metadata: { finalizers: ["sandmesh.test/hold"] } };
    await using place = await Place.open({ forceAfterMs: 500, podTemplate });
    const sandbox = await place.createRunning();
    // KWOK would take finalizers away.
    const error = await frozen("kwok", () => thrown(place.provider.remove(sandbox, undefined, soon())));
    expect(error).toBeInstanceOf(ProviderError);
    expect(error).toMatchObject({ reason: "stuck" });
    const away = '{"metadata":{"finalizers":null}}';
    await kubectl(["-n", place.namespace, "patch", "pod", sandbox, "--type=merge", "-p", away]).catch(
      () => "",
    );
    await place.provider.remove(sandbox, undefined, soon());
    expect(await place.provider.list(soon())).toEqual([]);
  },
);

needing("programs", "kwok")(
  "a removal that takes longer than a try costs no delete more at each further one",
  async () => {
    const podTemplate = { metadata: { finalizers: ["sandmesh.test/hold"] } };
    await using place = await Place.open({ podTemplate });
    const { provider } = place;
    const sandboxes = [await place.createRunning(), await place.createRunning()];
    const all = sandboxes.map(ofAnyUid);
    /** How many requests a try costs that is given up after 200 ms. */
    const costOf = async (work: (signal: AbortSignal) => Promise<void>): Promise<number> => {
      const before = provider.requests.sent;
      await thrown(work(AbortSignal.timeout(200)));
      return provider.requests.sent - before;
    };
    await frozen("kwok", async () => {
      await costOf((signal) => together(provider, all, signal));
      const again = (signal: AbortSignal) =>
        Promise.all(sandboxes.map((sandbox) => provider.remove(sandbox, undefined, signal))).then(
          () => undefined,
        );
      // The first may come before the watch has told of the deletion, or before its answer.
      await until("a try that asks for nothing", async () => (await costOf(again)) === 0, 20_000);
      expect(await costOf(again)).toBe(0);
    });
    await together(provider, all, soon());
    expect(await provider.list(soon())).toEqual([]);
  },
);

needing("programs", "kwok")(
  "of pods that are removed together one that is gone is told, while the node of another does not answer",
  async () => {
    await using place = await Place.open();
    const { provider } = place;
    // Without a node it is gone as soon as it is asked for.
    const waits = await place.create({ cpu: 1_000 });
    const runs = await place.createRunning();
    const [first, second] = await frozen("kwok", async () => {
      const ends = provider.removeMany?.([waits, runs].map(ofAnyUid), soon()) ?? [];
      const others = beside(Promise.all(ends));
      await ends[0];
      const left = await provider.list(soon());
      return [left.map(({ sandbox }) => sandbox), others] as const;
    });
    expect(first).toEqual([runs]);
    await second();
    expect(await provider.list(soon())).toEqual([]);
  },
);

needing("programs", "kwok")(
  "an API server that is frozen in a burst: each create ends well, once, and the watch goes on",
  async () => {
    await using place = await Place.open({ requestTimeoutMs: 1_000 });
    await place.createRunning();
    const made = await frozen("apiserver", async () => {
      const creating = beside(Promise.all(Array.from({ length: 20 }, () => place.create())));
      await Bun.sleep(2_500);
      return creating;
    });
    const names = await made();
    await Promise.all(names.map((name) => place.hears(name, "running")));
    expect(await place.provider.list(soon())).toHaveLength(21);
    await together(place.provider, names.map(ofAnyUid), soon());
    expect(await place.provider.list(soon())).toHaveLength(1);
  },
);
