import { describe, expect, test } from "bun:test";
import type { V1Pod } from "@kubernetes/client-node";
import { demandOf } from "./place/demand.ts";
import { podOf } from "./pod.ts";
import { requestOf, settingsOf } from "./testing.ts";

const made = (spec: object = {}, settings: object = {}) => podOf(requestOf(spec), settingsOf(settings));
const main = (pod: V1Pod) => pod.spec?.containers[0];

test("a pod has no token, no service links, no restart, no way to more privileges, and ends by itself", () => {
  const { spec } = made();
  expect(spec).toMatchObject({
    automountServiceAccountToken: false,
    enableServiceLinks: false,
    restartPolicy: "Never",
    // Whole seconds, never before the pool's own deadline.
    activeDeadlineSeconds: 91,
    terminationGracePeriodSeconds: 1,
    securityContext: { seccompProfile: { type: "RuntimeDefault" } },
  });
  expect(main(made())?.securityContext?.allowPrivilegeEscalation).toBe(false);
});

test("no other container of a pod has a way to more privileges, nor any: neither a sidecar nor who copies the daemon", () => {
  const sidecars = [{ name: "proxy", image: "proxy:1" }];
  const beside = made(
    { sidecars },
    { daemon: { by: "init", image: "daemon:1" }, capabilities: "root-tools" },
  );
  expect(beside.spec?.initContainers?.map(({ name, securityContext }) => [name, securityContext])).toEqual([
    ["sandmesh-daemon", { allowPrivilegeEscalation: false, capabilities: { drop: ["ALL"] } }],
    ["proxy", { allowPrivilegeEscalation: false, capabilities: { drop: ["ALL"] } }],
  ]);
});

describe("hardening profiles", () => {
  const contextOf = (settings: object) => main(made({}, settings))?.securityContext;

  test("strict leaves nothing, as Pod Security's restricted wants it", () => {
    expect(contextOf({ capabilities: "strict", runAsNonRoot: true })).toEqual({
      allowPrivilegeEscalation: false,
      capabilities: { drop: ["ALL"] },
      runAsNonRoot: true,
    });
  });

  test("default leaves what files and users need, and nothing of networks, devices or the kernel", () => {
    const { capabilities } = contextOf({}) ?? {};
    expect(capabilities?.drop).toEqual(["ALL"]);
    expect(capabilities?.add).toContain("SETUID");
    for (const risky of ["NET_RAW", "NET_ADMIN", "MKNOD", "SYS_ADMIN", "SYS_PTRACE", "AUDIT_WRITE"]) {
      expect(capabilities?.add).not.toContain(risky);
    }
  });

  test("root-tools lets setuid programs work, and still takes away devices and raw sockets", () => {
    expect(contextOf({ capabilities: "root-tools" })).toEqual({
      allowPrivilegeEscalation: true,
      capabilities: { drop: ["MKNOD", "NET_RAW", "AUDIT_WRITE"] },
    });
  });

  test("a read-only root is had by request", () => {
    expect(contextOf({})?.readOnlyRootFilesystem).toBeUndefined();
    expect(contextOf({ readOnlyRoot: true })?.readOnlyRootFilesystem).toBe(true);
  });
});

describe("how the daemon gets in", () => {
  const daemonOf = (daemon: object) => {
    const { spec } = made({}, { daemon });
    return { spec, mount: main(made({}, { daemon }))?.volumeMounts?.[0] };
  };
  const mount = { name: "sandmesh-daemon", mountPath: "/.sandmesh/daemon", readOnly: true };

  test("by image volume: read-only, the image untouched", () => {
    const found = daemonOf({ by: "image", image: "daemon:1" });
    expect(found.mount).toEqual(mount);
    expect(found.spec?.volumes).toEqual([
      { name: "sandmesh-daemon", image: { reference: "daemon:1", pullPolicy: "IfNotPresent" } },
    ]);
    expect(found.spec?.initContainers).toEqual([]);
  });

  test("by a folder of the node: its exact version, which must be there already", () => {
    const path = "/var/lib/sandmesh/daemon/0.1.0";
    const found = daemonOf({ by: "hostPath", path });
    expect(found.mount).toEqual(mount);
    // `Directory`: kubelet would make an empty one otherwise, where the installer has not been yet.
    expect(found.spec?.volumes).toEqual([{ name: "sandmesh-daemon", hostPath: { path, type: "Directory" } }]);
  });

  test("by a copy: made before the sandbox starts, by a container without privileges", () => {
    const found = daemonOf({ by: "init", image: "daemon:1" });
    expect(found.mount).toEqual(mount);
    expect(found.spec?.volumes).toEqual([{ name: "sandmesh-daemon", emptyDir: {} }]);
    expect(found.spec?.initContainers).toMatchObject([
      {
        image: "daemon:1",
        volumeMounts: [{ name: "sandmesh-daemon", mountPath: "/target" }],
        securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: ["ALL"] } },
      },
    ]);
  });
});

test("the image's own user, folder and command stay, unless the spec says otherwise", () => {
  expect(main(made())).not.toContainKeys(["workingDir", "args"]);
  expect(main(made())?.securityContext).not.toContainKeys(["runAsUser", "runAsGroup"]);
  expect(main(made())?.command).toEqual(["/.sandmesh/daemon/sandmesh-agent"]);
  const asked = main(made({ user: "1000:1001", cwd: "/work" }));
  expect(asked?.workingDir).toBe("/work");
  expect(asked?.securityContext).toMatchObject({ runAsUser: 1000, runAsGroup: 1001 });
});

test("requests and limits: the scheduler and kubelet count what was asked for", () => {
  const spec = {
    cpu: 1.5,
    memory_bytes: 1024,
    disk_bytes: 2048,
    extended_resources: { "nvidia.com/gpu": 1 },
  };
  expect(main(made(spec))?.resources).toEqual({
    limits: { cpu: "1500m", memory: "1024", "ephemeral-storage": "2048", "nvidia.com/gpu": "1" },
    requests: { cpu: "1500m", memory: "1024", "ephemeral-storage": "2048" },
  });
  expect(main(made(spec, { cpuRequestRatio: 0.1 }))?.resources?.requests?.cpu).toBe("150m");
  // Kubernetes knows no less than a thousandth; 0 would be no request at all.
  expect(main(made(spec, { cpuRequestRatio: 0 }))?.resources?.requests?.cpu).toBe("1m");
});

describe("what a spec says nothing of is requested by the settings, and limited by nothing", () => {
  const resourcesOf = (spec: object, settings: object = {}) => main(made(spec, settings))?.resources;

  test("so that the scheduler sees each sandbox, and none is left without a share of its node", () => {
    expect(resourcesOf({})).toEqual({ limits: {}, requests: { cpu: "20m", memory: "33554432" } });
    const defaultRequests = { cpu: 0.1, memoryBytes: 2 ** 30 };
    expect(resourcesOf({}, { defaultRequests })?.requests).toEqual({ cpu: "100m", memory: "1073741824" });
  });

  test("the spec's own values win, each by itself", () => {
    expect(resourcesOf({ cpu: 0.005 })).toEqual({
      limits: { cpu: "5m" },
      requests: { cpu: "5m", memory: "33554432" },
    });
    expect(resourcesOf({ memory_bytes: 1024 })).toEqual({
      limits: { memory: "1024" },
      requests: { cpu: "20m", memory: "1024" },
    });
  });

  test("0 requests nothing: a LimitRange sets only what is missing", () => {
    expect(resourcesOf({}, { defaultRequests: { cpu: 0 } })?.requests).toEqual({ memory: "33554432" });
    expect(resourcesOf({}, { defaultRequests: { memoryBytes: 0 } })?.requests).toEqual({ cpu: "20m" });
    expect(resourcesOf({}, { defaultRequests: { cpu: 0, memoryBytes: 0 } })?.requests).toEqual({});
  });

  test("sidecars and the daemon's copier request it, too: a quota of requests asks every container", () => {
    const settings = { daemon: { by: "init", image: "daemon:1" } };
    const { spec } = made({ sidecars: [{ name: "proxy", image: "proxy:1" }] }, settings);
    const requests = { cpu: "20m", memory: "33554432" };
    expect(spec?.initContainers?.map(({ resources }) => resources)).toEqual([{ requests }, { requests }]);
  });

  test("direct placement counts it", () => {
    expect(demandOf(made())?.requests).toEqual({ cpu: 0.02, memory: 32 * 2 ** 20, pods: 1 });
    expect(demandOf(made({ cpu: 1 }))?.requests).toEqual({ cpu: 1, memory: 32 * 2 ** 20, pods: 1 });
  });
});

test("labels of the spec cannot stand in for ours, by which all is found and deleted", () => {
  const labels = made({ labels: { team: "x", "sandmesh.dev/mesh": "other" } }).metadata?.labels;
  expect(labels).toMatchObject({
    team: "x",
    "sandmesh.dev/mesh": "test",
    "sandmesh.dev/tenant": "acme",
    "sandmesh.dev/sandbox": "sb-1",
    "sandmesh.dev/network": "none",
  });
});

test("a network policy's name is a label's value, and the node's own network only by that word", () => {
  expect(made({ network: "policy:open" }).metadata?.labels?.["sandmesh.dev/network"]).toBe("policy-open");
  expect(made({ network: "policy:open" }).spec?.hostNetwork).toBeUndefined();
  expect(made({ network: "host" }).spec).toMatchObject({ hostNetwork: true });
});

test("credentials for registries are the settings' and the spec's together, and none are named where there are none", () => {
  const secretsOf = (spec: object, settings: object) => made(spec, settings).spec?.imagePullSecrets;
  expect(secretsOf({ image_pull_secrets: ["a", "b"] }, { imagePullSecrets: ["ours"] })).toEqual([
    { name: "ours" },
    { name: "a" },
    { name: "b" },
  ]);
  expect(secretsOf({}, {})).toBeUndefined();
});

test("the platform's runtime class, scheduler, priority and nodes are every pod's", () => {
  const settings = {
    runtimeClass: "gvisor",
    schedulerName: "batch",
    priorityClass: "low",
    nodeSelector: { pool: "rl" },
    tolerations: [{ key: "rl", operator: "Exists" }],
    imagePullPolicy: "Always",
  };
  const pod = made({}, settings);
  expect(pod.spec).toMatchObject({
    runtimeClassName: "gvisor",
    schedulerName: "batch",
    priorityClassName: "low",
    nodeSelector: { pool: "rl" },
    tolerations: [{ key: "rl", operator: "Exists" }],
  });
  expect(main(pod)?.imagePullPolicy).toBe("Always");
  expect(made().spec).not.toContainAnyKeys(["runtimeClassName", "schedulerName", "priorityClassName"]);
});

test("data volumes are read-only in each of their kinds", () => {
  const volumes = [
    { name: "a", source: "claim-1", mount_path: "/a" },
    { name: "b", source: "image:data:1", mount_path: "/b" },
    { name: "c", source: "hostPath:/data", mount_path: "/c" },
  ];
  const pod = made({ volumes }, { hostPaths: ["/data"] });
  expect(pod.spec?.volumes?.slice(1)).toEqual([
    { name: "data-a", persistentVolumeClaim: { claimName: "claim-1", readOnly: true } },
    { name: "data-b", image: { reference: "data:1", pullPolicy: "IfNotPresent" } },
    { name: "data-c", hostPath: { path: "/data", type: "Directory" } },
  ]);
  expect(
    main(pod)
      ?.volumeMounts?.slice(1)
      .every(({ readOnly }) => readOnly === true),
  ).toBe(true);
});

test("a sidecar does not keep the pod alive, nor end it", () => {
  const sidecars = [{ name: "proxy", image: "proxy:1", env: { A: "1", B: null } }];
  expect(made({ sidecars }).spec?.initContainers).toMatchObject([
    { name: "proxy", restartPolicy: "Always", env: [{ name: "A", value: "1" }] },
  ]);
  expect(made({ sidecars }).spec?.containers).toHaveLength(1);
});

test("the platform team's template is merged over the pod: it adds, replaces and takes away", () => {
  const podTemplate = {
    metadata: { annotations: { "team/cost": "rl" }, labels: { "sandmesh.dev/run": null } },
    spec: { dnsPolicy: "None", enableServiceLinks: null, tolerations: [{ operator: "Exists" }] },
  };
  const tolerations = [{ key: "gpu", operator: "Exists" }];
  const pod = made({}, { podTemplate, tolerations });
  expect(pod.metadata?.annotations).toEqual({ "team/cost": "rl" });
  expect(pod.metadata?.labels).not.toContainKey("sandmesh.dev/run");
  expect(pod.metadata?.labels?.["sandmesh.dev/mesh"]).toBe("test");
  expect(pod.spec).toMatchObject({ dnsPolicy: "None", tolerations: [{ operator: "Exists" }] });
  expect(pod.spec).not.toContainKey("enableServiceLinks");
  // Arrays are replaced whole (RFC 7396), so that what is merged can be said for sure.
  expect(pod.spec?.containers).toEqual(made().spec?.containers);
});

test("two pods of one template are two objects", () => {
  const podTemplate = { metadata: { annotations: { a: "b" } } };
  const settings = settingsOf({ podTemplate });
  const [one, two] = [podOf(requestOf(), settings), podOf(requestOf(), settings)];
  if (one.metadata?.annotations !== undefined) one.metadata.annotations.a = "changed";
  expect(two.metadata?.annotations?.a).toBe("b");
});

test("the daemon is told to start the image's own program where it is asked for, and only then", () => {
  const told = (spec: object) => {
    const pod = made({ image: "task:1", ...spec }, { entrypoints: { task: ["/serve", "--all"] } });
    const [variable] = main(pod)?.env ?? [];
    return JSON.parse(variable?.value ?? "").entrypoint;
  };
  expect(told({ entrypoint: true })).toEqual(["/serve", "--all"]);
  expect(told({})).toBeUndefined();
  // The daemon stays the container's command.
  expect(main(made({ entrypoint: true }, { entrypoints: { "task:1": ["/x"] } }))?.command).toHaveLength(1);
});
