// The kubernetes provider passes the contract that all providers pass, with the real daemon in pods of the real node.
import type { SandboxSpec } from "../../broker/contract/index.ts";
import { createOperatorKeys, keyRingOf } from "../../broker/server/operator.ts";
import { describeProvider } from "../../pool/provider/contract.test-suite.ts";
import { createKubernetesProvider } from "../../pool/provider/kubernetes/index.ts";
import { eventually } from "../e2e/program.ts";
import { IMAGES } from "../images/kubernetes.ts";
import { killDaemon, newMesh, podsOf, processesOf, quiet, removePods, settingsFor } from "./cluster.ts";

const BURIED_WITHIN_MS = 3_000;
const keys = keyRingOf(createOperatorKeys());

/** Nobody listens on port 1: these daemons go on trying, as they would while their server starts. */
const request = (sandbox: string, spec: SandboxSpec, maxLifeMs: number) => ({
  sandbox,
  tenant: "acme",
  run: "run-1",
  spec,
  maxLifeMs,
  bootstrap: {
    version: 1 as const,
    urls: ["nats://127.0.0.1:1"],
    tenant: "acme",
    sandbox,
    generation: 1,
    ...keys.mintBootstrap({ tenant: "acme", sandbox, ttlMs: 600_000 }),
    boot_timeout_ms: 600_000,
  },
});

describeProvider("kubernetes", async () => {
  const mesh = newMesh();
  const uids = new Set<string>();
  const open = () => {
    const provider = createKubernetesProvider(settingsFor(mesh), quiet);
    const create = provider.create.bind(provider);
    provider.create = async (...given) => {
      const made = await create(...given);
      uids.add(made.uid);
      return made;
    };
    return provider;
  };
  let provider = open();
  return {
    get provider() {
      return provider;
    },
    spec: { image: IMAGES.busybox },
    badImage: "Not an:image@reference",
    unsupported: { spec: { pids: 100 }, field: "spec.pids" },
    request,
    // One kubelet on two cores starts and ends about two pods a second.
    deadlineMs: 90_000,
    crash: killDaemon,
    leftBehind: async () => {
      // The node tells that a pod is gone when it has killed the last process; the kernel buries that a little later.
      let left: string[] = [];
      const gone = async () => {
        left = [...(await podsOf(mesh)), ...processesOf(uids)];
        return left.length === 0;
      };
      await eventually("nothing left", gone, BURIED_WITHIN_MS).catch(() => undefined);
      return left;
    },
    restart: async () => {
      provider = open();
      return provider;
    },
    close: async () => {
      await provider.close();
      await removePods(mesh);
    },
  };
});
