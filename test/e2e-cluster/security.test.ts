// Which way of bringing the daemon in works under which Pod Security level, as pool/provider/kubernetes says.
import { afterAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { readFileSync } from "node:fs";
import { newSandboxId, UnsupportedError } from "../../broker/contract/index.ts";
import { createKubernetesProvider, type KubernetesSettings } from "../../pool/provider/kubernetes/index.ts";
import { unheard } from "../../pool/testing/request.ts";
import { needing } from "../cluster/needs.ts";
import { eventually } from "../e2e/program.ts";
import { IMAGES } from "../images/kubernetes.ts";
import { kubectl, newMesh, processesOf, quiet, settingsFor } from "./cluster.ts";
import { apply, namespaceOf } from "./install.ts";

setDefaultTimeout(120_000);
const SOURCES: Record<KubernetesSettings["daemon"]["by"], KubernetesSettings["daemon"]> = {
  image: { by: "image", image: IMAGES.daemon, pullPolicy: "Never" },
  hostPath: { by: "hostPath", path: "/var/lib/sandmesh/daemon/1" },
  init: { by: "init", image: IMAGES.daemon, pullPolicy: "Never", command: ["/bin/cp"] },
};
const STRICT = { capabilities: "strict", runAsNonRoot: true, readOnlyRoot: true } as const;
const LEVELS: Record<string, { works: string[]; settings: Partial<KubernetesSettings> }> = {
  privileged: { works: ["image", "hostPath", "init"], settings: {} },
  baseline: { works: ["image", "init"], settings: {} },
  restricted: { works: ["image", "init"], settings: STRICT },
};

afterAll(async () => {
  for (const level of Object.keys(LEVELS))
    await kubectl("delete", "namespace", `level-${level}`, "--wait=false");
});

for (const [level, { works, settings }] of Object.entries(LEVELS)) {
  describe(`under ${level}`, () => {
    for (const [by, daemon] of Object.entries(SOURCES)) {
      test(`${by} ${works.includes(by) ? "works" : "is refused, by the cluster's own words"}`, async () => {
        await apply(namespaceOf(`level-${level}`, level));
        const where = { namespace: `level-${level}`, nodeSelector: { type: "kwok" } };
        const provider = createKubernetesProvider(
          settingsFor(newMesh(), { ...settings, ...where, daemon }),
          quiet,
        );
        const request = unheard(newSandboxId(), { image: "any:1" });
        const { sandbox } = request;
        const limit = AbortSignal.timeout(30_000);
        try {
          const made = await provider.create(request, limit).then(
            () => "created",
            (error: unknown) => error,
          );
          if (works.includes(by)) expect(made).toBe("created");
          else {
            expect(made).toBeInstanceOf(UnsupportedError);
            expect(String(made)).toContain("violates PodSecurity");
          }
        } finally {
          await provider.remove(sandbox, undefined, limit);
          await provider.close();
        }
      });
    }
  });
}

needing("node")(
  "the daemon runs with nothing: restricted, no capability, no root, a root file system that cannot be written",
  async () => {
    await apply(namespaceOf("level-restricted", "restricted"));
    const settings = settingsFor(newMesh(), { ...STRICT, namespace: "level-restricted" });
    const provider = createKubernetesProvider(settings, quiet);
    const request = unheard(newSandboxId(), { image: IMAGES.user });
    try {
      const { uid } = await provider.create(request, AbortSignal.timeout(30_000));
      const running = () =>
        processesOf(new Set([uid])).some((each) => {
          const pid = each.match(/process (\d+)/)?.[1] ?? "";
          return commandOf(pid).includes("sandmesh-daemon");
        });
      await eventually("its daemon runs", running, 60_000);
    } finally {
      await provider.remove(request.sandbox, undefined, AbortSignal.timeout(60_000));
      await provider.close();
    }
  },
);

function commandOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8");
  } catch {
    return ""; // It has ended meanwhile.
  }
}
