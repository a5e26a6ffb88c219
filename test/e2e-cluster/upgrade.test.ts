// An upgrade of the release, with sandboxes that live.
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { readdirSync } from "node:fs";
import type { Mesh } from "../../sdk/typescript/mod.ts";
import { IMAGES } from "../images/kubernetes.ts";
import { kubectl } from "./cluster.ts";
import { INSTALLED, upgrade } from "./install.ts";
import { ClusterMesh } from "./mesh.ts";

setDefaultTimeout(300_000);
const FOLDER = "/run/sandmesh-cluster/daemon";

let cluster: ClusterMesh;
let mesh: Mesh;
beforeAll(async () => {
  cluster = new ClusterMesh();
  mesh = await cluster.connect({ lease: "5m" });
});
afterAll(async () => {
  await upgrade();
  await cluster[Symbol.asyncDispose]();
});

const daemonOf = (sandbox: string): Promise<string> =>
  kubectl(
    "-n",
    INSTALLED.sandboxes,
    "get",
    "pod",
    sandbox,
    "-o",
    "jsonpath={.spec.volumes[0].hostPath.path}",
  );

test("with another daemon a live sandbox goes on with the one that it has; the next one gets the new one", async () => {
  await using old = await mesh.acquire({ image: IMAGES.busybox });
  const shell = await old.shell({ shell: "sh" });
  await shell.exec("N=7");
  const before = await daemonOf(old.id);
  await upgrade("daemon.version=next");
  await cluster.answers();
  expect((await shell.exec("echo $N")).stdout.text).toBe("7\n");
  expect((await mesh.list()).map(({ sandbox }) => sandbox)).toEqual([old.id]);
  await using young = await mesh.acquire({ image: IMAGES.busybox });
  expect((await young.exec("echo here")).stdout.text).toBe("here\n");
  expect([before, await daemonOf(young.id)]).toEqual([before, `${FOLDER}/next`]);
  expect(before).not.toBe(`${FOLDER}/next`);
  expect(readdirSync(FOLDER).filter((name) => !name.startsWith("."))).toContain("next");
  await old.release();
  await young.release();
});
