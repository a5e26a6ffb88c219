import { describe, expect, test } from "bun:test";
import { type SandboxSpec, SandmeshError } from "../../../broker/contract/index.ts";
import { checkName, notIsolated, parseUser, refuseUnsupported } from "./spec.ts";
import { settingsOf } from "./testing.ts";

const refusal = (spec: object, settings: object = {}): [string, string | undefined] | undefined => {
  try {
    refuseUnsupported({ image: "task:1", ...spec } as SandboxSpec, settingsOf(settings));
    return undefined;
  } catch (error) {
    if (!(error instanceof SandmeshError)) throw error;
    return [error.code, error.field];
  }
};

describe("what is refused before anything is made, naming the field", () => {
  test("image references that no runtime can read", () => {
    for (const image of ["UPPER", "a b", "", "task:", "task@sha256:short", "-a", "host:port/x"]) {
      expect(refusal({ image })).toEqual(["image_error", "spec.image"]);
    }
    const digest = `sha256:${"a".repeat(64)}`;
    for (const image of [
      "task",
      "task:1",
      "reg.example:5000/a/b:v1",
      `ghcr.io/a/b@${digest}`,
      "[::1]:5000/a",
    ]) {
      expect(refusal({ image })).toBeUndefined();
    }
  });

  test("what a pod has no field for", () => {
    expect(refusal({ pids: 5 })).toEqual(["unsupported", "spec.pids"]);
    expect(refusal({ user: "root" })).toEqual(["unsupported", "spec.user"]);
    expect(refusal({ env: { PATH: null } })).toEqual(["unsupported", "spec.env.PATH"]);
  });

  test("the image's own entrypoint, unless this pool's settings know it, for all tags or for one", () => {
    const of = (image: string, names: string[]) =>
      refusal(
        { image, entrypoint: true },
        { entrypoints: Object.fromEntries(names.map((name) => [name, ["/serve"]])) },
      );
    expect(of("task:1", [])).toEqual(["unsupported", "spec.entrypoint"]);
    expect(of("task:1", ["task:1"])).toBeUndefined();
    expect(of("task:2", ["task:1"])).toEqual(["unsupported", "spec.entrypoint"]);
    const digest = `@sha256:${"0".repeat(64)}`;
    for (const image of [
      "reg.example:5000/a/task",
      "reg.example:5000/a/task:2",
      `reg.example:5000/a/task:2${digest}`,
    ]) {
      expect(of(image, ["reg.example:5000/a/task"])).toBeUndefined();
      expect(of(image, ["reg.example", "task"])).toEqual(["unsupported", "spec.entrypoint"]);
    }
    expect(refusal({ image: "task:1", entrypoint: false })).toBeUndefined();
  });

  test("the node's network and folders, unless this pool's settings allow them", () => {
    expect(refusal({ network: "host" })).toEqual(["unsupported", "spec.network"]);
    expect(refusal({ network: "host" }, { allowHostNetwork: true })).toBeUndefined();
    const volume = (source: string) => ({ volumes: [{ name: "d", source, mount_path: "/d" }] });
    const allowed = { hostPaths: ["/data"] };
    expect(refusal(volume("hostPath:/data/x"))).toEqual(["unsupported", "spec.volumes.0.source"]);
    expect(refusal(volume("hostPath:/data/x"), allowed)).toBeUndefined();
    expect(refusal(volume("hostPath:/data"), allowed)).toBeUndefined();
    for (const path of ["/database", "/data/../etc", "/etc", "/"]) {
      expect(refusal(volume(`hostPath:${path}`), allowed)).toEqual(["unsupported", "spec.volumes.0.source"]);
    }
  });

  test("a volume over the daemon's own folder, or over the whole root", () => {
    for (const path of ["/", "/.sandmesh", "/.sandmesh/daemon", "relative", "/a:b"]) {
      const volumes = [{ name: "d", source: "claim", mount_path: path }];
      expect(refusal({ volumes })).toEqual(["invalid_request", "spec.volumes.0.mount_path"]);
    }
  });

  test("labels that are ours, or none of Kubernetes'", () => {
    const of = (key: string, value = "x") => refusal({ labels: { [key]: value } });
    expect(of("sandmesh.dev/mesh")).toEqual(["invalid_request", "spec.labels.sandmesh.dev/mesh"]);
    expect(of("app.kubernetes.io/managed-by")?.[0]).toBe("invalid_request");
    expect(of("a b")?.[0]).toBe("invalid_request");
    expect(of("team", "-x")?.[0]).toBe("invalid_request");
    expect(of("team", "x".repeat(64))?.[0]).toBe("invalid_request");
    expect(of("team/x", "")).toBeUndefined();
  });

  test("sidecars that would take our containers' names, or each other's", () => {
    const sidecar = (name: string) => ({ name, image: "a" });
    expect(refusal({ sidecars: [sidecar("sandbox")] })).toEqual(["unsupported", "spec.sidecars.0.name"]);
    const twice = [sidecar("a"), sidecar("a")];
    expect(refusal({ sidecars: twice })).toEqual(["unsupported", "spec.sidecars.1.name"]);
  });
});

test("users are numbers, with or without a group", () => {
  expect(parseUser("0")).toEqual({ uid: 0, gid: undefined });
  expect(parseUser("1000:1001")).toEqual({ uid: 1000, gid: 1001 });
  for (const user of ["", "root", "1:", ":1", "1:2:3", "-1", "99999999999"]) {
    expect(parseUser(user)).toBeUndefined();
  }
});

test("a name that the API server would refuse is refused here, and can be no other pod's path", () => {
  for (const name of ["sb-1", "a"]) expect(() => checkName(name)).not.toThrow();
  for (const name of ["", "a-", "A", "a.b", "../x", "a/b", "a".repeat(64)]) {
    expect(() => checkName(name)).toThrow("cannot name a pod");
  }
});

test("what is not isolated is said: the kernel without a runtime class, each limit that is not asked for", () => {
  const limits = { cpu: 1, memory_bytes: 1, disk_bytes: 1 };
  const of = (spec: object, settings: object = {}) =>
    notIsolated({ image: "a", ...spec } as SandboxSpec, settingsOf(settings)).join(" ");
  expect(of({})).toMatch(/kernel.*network.*cpu.*memory.*disk/);
  expect(of(limits, { runtimeClass: "gvisor" })).not.toMatch(/kernel|cpu|memory|disk/);
  expect(of({ network: "host" })).toContain("the node's own");
  expect(of({}, { capabilities: "root-tools" })).toContain("setuid");
});
