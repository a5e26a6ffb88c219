// The kubernetes provider passes the contract that all providers pass, with the real daemon in pods of the real node.
import { describeProvider } from "../../pool/provider/contract.test-suite.ts";
import { createKubernetesProvider } from "../../pool/provider/kubernetes/index.ts";
import { unheard } from "../../pool/testing/request.ts";
import { lacks, needing } from "../cluster/needs.ts";
import { eventually } from "../e2e/program.ts";
import { IMAGES } from "../images/kubernetes.ts";
import { killDaemon, newMesh, podsOf, processesOf, quiet, removePods, settingsFor } from "./cluster.ts";

const BURIED_WITHIN_MS = 3_000;

/** Its daemons crash by the node's runtime. */
const describeHere: typeof describeProvider = lacks("node")
  ? () => needing("node")("the contract of providers", async () => {})
  : describeProvider;

describeHere("kubernetes", async () => {
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
    request: unheard,
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
