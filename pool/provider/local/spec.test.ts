// What is refused before anything is made, and what is said to be shared.
import { expect, test } from "bun:test";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { check, SandboxSpec } from "../../../broker/contract/index.ts";
import { createLocalProvider } from "./provider.ts";
import { Secrets } from "./secrets.ts";
import { notIsolated, refuseUnsupported } from "./spec.ts";
import { requestFor, signal } from "./testing.ts";

const refuse = (wish: object): unknown => {
  try {
    refuseUnsupported(check(SandboxSpec, { image: "host", ...wish }), new Secrets(["/var/lib"]));
    return undefined;
  } catch (error) {
    return error;
  }
};

test("each wish that it cannot fulfil is refused by its own field", () => {
  const wishes: Record<string, object> = {
    "spec.network": { network: "policy:web" },
    "spec.sidecars": { sidecars: [{ name: "db", image: "host" }] },
    "spec.image_pull_secrets": { image_pull_secrets: ["registry"] },
    "spec.extended_resources": { extended_resources: { "nvidia.com/gpu": 1 } },
    "spec.template": { template: "warm" },
  };
  for (const [field, wish] of Object.entries(wishes))
    expect(refuse(wish)).toMatchObject({ code: "unsupported", field });
});

test("a disk on which nothing could run is refused", () => {
  expect(refuse({ disk_bytes: 1 << 20 })).toMatchObject({
    code: "invalid_request",
    field: "spec.disk_bytes",
  });
  expect(refuse({ disk_bytes: 1 << 30 })).toBeUndefined();
});

test("empty lists wish for nothing", () => {
  expect(
    refuse({ sidecars: [], image_pull_secrets: [], extended_resources: {}, volumes: [] }),
  ).toBeUndefined();
});

test("a volume's source is a folder by absolute path, and not the state folder by another name", () => {
  const volume = (source: string) => refuse({ volumes: [{ name: "d", source, mount_path: "/d" }] });
  expect(volume("/usr/share")).toBeUndefined();
  for (const source of ["data", "/no/such/folder", "/etc/passwd", "/", "/var/../"]) {
    expect(volume(source)).toMatchObject({ code: "invalid_request", field: "spec.volumes.0.source" });
  }
});

test("a limit that the kernel will not hold is said, each by itself", () => {
  const spec = check(SandboxSpec, { image: "host", memory_bytes: 1 << 28, pids: 64, network: "host" });
  const none = notIsolated(spec, { root: true, enforced: new Set(), disk: false }).join("\n");
  expect(none).toContain("memory: the limit is not enforced");
  expect(none).toContain("the network");
  expect(none).toContain("disk: no limit, it needs root");
  const asked = check(SandboxSpec, { image: "host", disk_bytes: 1 << 28 });
  expect(notIsolated(asked, { root: false, enforced: new Set(), disk: false })).toContain(
    "disk: the limit is not enforced, it needs root",
  );
  const all = notIsolated(spec, {
    root: true,
    enforced: new Set(["cpu", "memory", "pids"]),
    disk: true,
  }).join("\n");
  expect(all).not.toContain("not enforced");
  expect(all).toContain("cpu: shared: a sandbox has a limit only where it asks for one (cpu)");
  expect(all).toContain("disk: shared: a sandbox has a limit only where it asks for one (disk_bytes)");
  expect(all).not.toContain("processes");
  expect(all).not.toContain("memory");
});

test("a daemon that was not built, or whose folder was removed, is told with its path and what to do", async () => {
  const folder = await mkdtemp(join(tmpdir(), "sandmesh-spec-"));
  const daemonDir = join(folder, "none");
  const log = { info: () => undefined, warn: () => undefined };
  const provider = createLocalProvider({ stateDir: folder, daemonDir, natsUrl: "127.0.0.1:1", log });
  const refused = await provider.create(requestFor("sb-none", {}), signal()).catch((error: unknown) => error);
  await provider.end(signal());
  await rm(folder, { recursive: true });
  expect(refused).toMatchObject({ code: "provider_failed", reason: "ENOENT", sandbox: "sb-none" });
  expect(String(refused)).toContain(`${daemonDir}: run \`bash deploy/setup\``);
});
