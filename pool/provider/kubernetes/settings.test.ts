import { expect, test } from "bun:test";
import * as v from "valibot";
import { KubernetesSettings } from "./settings.ts";
import { settingsOf } from "./testing.ts";

const refused = (given: object): boolean => !v.safeParse(KubernetesSettings, given).success;
const daemon = { by: "hostPath", path: "/daemon" };

test("with a mesh and a daemon alone, pods are hardened and the scheduler places them", () => {
  expect(settingsOf()).toMatchObject({
    capabilities: "default",
    allowHostNetwork: false,
    hostPaths: [],
    placement: "scheduler",
    directNodes: "sandmesh.dev/placement=direct",
    graceMs: 1_000,
    maxRequests: 32,
    defaultRequests: { cpu: 0.02, memoryBytes: 32 * 2 ** 20 },
  });
});

test("a setting that there is none of is refused: a typing error must not leave a pod unhardened", () => {
  expect(refused({ mesh: "m", daemon, capabilites: "strict" })).toBe(true);
  expect(refused({ mesh: "m", daemon: { ...daemon, image: "x" } })).toBe(true);
  expect(refused({ mesh: "m", daemon, capabilities: "none" })).toBe(true);
});

test("each way for the daemon names what it needs", () => {
  expect(refused({ mesh: "m" })).toBe(true);
  expect(refused({ mesh: "m", daemon: { by: "hostPath", path: "relative" } })).toBe(true);
  expect(refused({ mesh: "m", daemon: { by: "image" } })).toBe(true);
  expect(refused({ mesh: "m", daemon: { by: "init", image: "" } })).toBe(true);
  expect(refused({ mesh: "m", daemon: { by: "magic" } })).toBe(true);
});

test("a mesh's name can be a label's value, and times have bounds", () => {
  expect(refused({ mesh: "A b", daemon })).toBe(true);
  expect(refused({ mesh: "", daemon })).toBe(true);
  expect(refused({ mesh: "m", daemon, graceMs: 0 })).toBe(true);
  expect(refused({ mesh: "m", daemon, maxRequests: 1_000 })).toBe(true);
});

test("what is requested by default is an amount, or 0 for none, and each by itself", () => {
  const of = (defaultRequests: object) => settingsOf({ defaultRequests }).defaultRequests;
  expect(of({ cpu: 0 })).toEqual({ cpu: 0, memoryBytes: 32 * 2 ** 20 });
  expect(of({ memoryBytes: 0 })).toEqual({ cpu: 0.02, memoryBytes: 0 });
  const wrong = [{ cpu: -1 }, { cpu: "20m" }, { memoryBytes: 0.5 }, { memory_bytes: 1 }, null];
  for (const defaultRequests of wrong) expect(refused({ mesh: "m", daemon, defaultRequests })).toBe(true);
});
