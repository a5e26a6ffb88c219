// What a real API server tells of pods in protocol buffers, beside what it tells of the same ones in JSON.
import { expect, setDefaultTimeout, test } from "bun:test";
import { until } from "../../../broker/server/testing.ts";
import { openAccess } from "../../../pool/provider/kubernetes/api/access.ts";
import { Collection } from "../../../pool/provider/kubernetes/api/collection.ts";
import { BINARY, BINARY_OR_JSON } from "../../../pool/provider/kubernetes/api/objects.ts";
import { errorOf } from "../../../pool/provider/kubernetes/api/status.ts";
import { Transport } from "../../../pool/provider/kubernetes/api/transport.ts";
import { PodView } from "../../../pool/provider/kubernetes/observe.ts";
import { kubectl, Place } from "./cluster.ts";

setDefaultTimeout(90_000);
const JSON_ONLY = "application/json";

/** Statuses that only a kubelet makes. */
const STATUSES = [
  {
    phase: "Pending",
    initContainerStatuses: [
      {
        name: "sandmesh-daemon",
        state: { terminated: { exitCode: 0, reason: "Completed", startedAt: null } },
      },
    ],
    containerStatuses: [
      { name: "sandbox", state: { waiting: { reason: "ErrImagePull", message: "manifest unknown: ä" } } },
    ],
  },
  {
    phase: "Failed",
    reason: "Evicted",
    message: "The node was low on resource: memory.",
    containerStatuses: [
      {
        name: "sandbox",
        state: {
          terminated: {
            exitCode: -1,
            signal: 9,
            reason: "OOMKilled",
            startedAt: "2026-01-02T03:04:05Z",
            finishedAt: "2026-01-02T03:04:06Z",
          },
        },
      },
      { name: "other", state: { running: { startedAt: "2026-01-02T03:04:05Z" } } },
    ],
    conditions: [
      {
        type: "DisruptionTarget",
        status: "True",
        reason: "TerminationByKubelet",
        message: "the node is full",
      },
    ],
  },
];

const whole = (containers: object): object => ({
  ready: false,
  restartCount: 0,
  image: "i",
  imageID: "i",
  ...containers,
});

async function setStatus(place: Place, sandbox: string, status: (typeof STATUSES)[number]): Promise<void> {
  const patch = {
    status: {
      ...status,
      containerStatuses: status.containerStatuses.map(whole),
      ...(status.initContainerStatuses && { initContainerStatuses: status.initContainerStatuses.map(whole) }),
    },
  };
  const how = ["--subresource=status", "--type=merge", "-p", JSON.stringify(patch)];
  await kubectl(["-n", place.namespace, "patch", "pod", sandbox, ...how]);
}

/** JSON has `null` for a time that is none. */
const withoutNulls = (told: unknown): unknown =>
  JSON.parse(JSON.stringify(told, (_key, value: unknown) => value ?? undefined));

test("pods in every state are the same in both forms, listed and watched", async () => {
  await using place = await Place.open({
    unschedulableMs: 100,
    nodeSelector: { "sandmesh.test/no": "where" },
  });
  const transport = new Transport(openAccess(undefined, undefined), {
    maxRequests: 4,
    requestTimeoutMs: 30_000,
  });
  const stop = new AbortController();
  const path = `/api/v1/namespaces/${place.namespace}/pods`;
  const selector = `sandmesh.dev/mesh=${place.namespace}`;
  const [json, binary] = [JSON_ONLY, BINARY].map(
    (accept) => new Collection(transport, path, selector, PodView, "pods", accept),
  ) as [Collection<PodView>, Collection<PodView>];
  try {
    const { version } = await json.list(stop.signal);
    const told: unknown[][] = [[], []];
    const heed = async (pods: Collection<PodView>, i: number): Promise<void> => {
      for await (const line of pods.watch(version, stop.signal)) told[i]?.push(line);
    };
    // Their end comes by the abort.
    const watching = Promise.allSettled([json, binary].map(heed));
    for (const status of STATUSES) await setStatus(place, await place.create(), status);
    await place.hears(await place.create(), "failed");
    const removed = await place.create();
    await kubectl(["-n", place.namespace, "delete", "pod", removed, "--grace-period=1"]);
    await until("the last pod's end, told by both", () =>
      told.every((lines) => lines.some((line) => JSON.stringify(line).includes('"DELETED"'))),
    );
    const [asJson, asBinary] = told.map(withoutNulls);
    expect(asBinary).toEqual(asJson);
    expect(new Set(told[0]?.map((line) => Object(line).type))).toEqual(
      new Set(["ADDED", "MODIFIED", "DELETED"]),
    );
    const items = async (pods: Collection<PodView>) => withoutNulls((await pods.list(stop.signal)).items);
    expect(await items(binary)).toEqual(await items(json));
    stop.abort();
    await watching;
  } finally {
    stop.abort();
    transport.close();
  }
});

test("a refusal has the same words in both forms", async () => {
  await using place = await Place.open();
  const transport = new Transport(openAccess(undefined, undefined), {
    maxRequests: 1,
    requestTimeoutMs: 30_000,
  });
  try {
    const body = {
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name: "x", labels: { a: "not a label!" } },
      spec: { containers: [] },
    };
    const path = `/api/v1/namespaces/${place.namespace}/pods`;
    const said = async (accept: string) => {
      const reply = await transport.request(
        { method: "POST", path, body, accept },
        AbortSignal.timeout(30_000),
        true,
      );
      return errorOf(reply, "creating").toWire();
    };
    expect(await said(BINARY_OR_JSON)).toEqual(await said(JSON_ONLY));
    expect((await said(BINARY)).field).toBe("spec.labels");
  } finally {
    transport.close();
  }
});
