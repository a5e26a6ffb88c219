// The node of test/cluster itself, as far as the other tests rely on it.
import { expect } from "bun:test";
import { needing } from "../cluster/needs.ts";
import { kubectl } from "./cluster.ts";

needing("node")("the node keeps its images, which no registry has, however full the disk is", async () => {
  const [real = ""] = (await kubectl("get", "nodes", "-l", "sandmesh.test/real=true", "-o", "name")).split(
    "\n",
  );
  const { kubeletconfig } = JSON.parse(
    await kubectl("get", "--raw", `/api/v1/${real.replace("node/", "nodes/")}/proxy/configz`),
  );
  // 100: none is collected.
  expect(kubeletconfig.imageGCHighThresholdPercent).toBe(100);
});
