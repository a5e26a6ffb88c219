// Installs the mesh from its chart onto the cluster, as a person would: namespaces, Secrets, helm.
//
//   bun test/e2e-cluster/install.ts KEYS_FOLDER      waits until the pool says that it is ready
//
// On a cluster of $KUBECONFIG by values-foreign.yaml: SANDMESH_TEST_REGISTRY is where its nodes get the images from, default
// that they have them; SANDMESH_TEST_NATS_IP an address of its Services for NATS, which only one without DNS needs.
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { meshSecrets, mintUser } from "../../deploy/kubernetes/credentials.ts";
import { IMAGE_NAMES } from "../../deploy/kubernetes/images.ts";
import { FOREIGN } from "../cluster/needs.ts";
import { output } from "../cluster/output.ts";
import { IMAGES } from "../images/kubernetes.ts";
import { inCheckout, kubectl } from "./cluster.ts";

export interface Release {
  release: string;
  namespace: string;
  /** The sandboxes' namespace. */
  sandboxes: string;
  mesh: string;
  natsAddress: string;
  /** Over those of values.yaml. */
  values: object;
}

const REGISTRY = process.env.SANDMESH_TEST_REGISTRY;
const at = (image: string): string => (REGISTRY === undefined ? image : `${REGISTRY}/${image}`);
export const MESH_IMAGES = { pool: at(IMAGE_NAMES.pool), daemon: at(IMAGE_NAMES.daemon) };

const OWN_NATS = process.env.SANDMESH_TEST_NATS_IP ? [process.env.SANDMESH_TEST_NATS_IP] : [];

/** A cluster of $KUBECONFIG's own. */
const foreignValues = () => ({
  nats: { image: IMAGES.nats, clusterIP: OWN_NATS[0] ?? "" },
  pool: { image: MESH_IMAGES.pool },
  daemon: { image: MESH_IMAGES.daemon },
});

/** As in values.yaml. */
export const INSTALLED: Release = {
  release: "mesh",
  namespace: "sandmesh",
  sandboxes: "sandboxes",
  mesh: "e2e",
  // Another cluster's is reached through its API server.
  natsAddress: FOREIGN ? "127.0.0.1" : "10.92.0.50",
  values: FOREIGN ? foreignValues() : {},
};

/** The node pulls nothing and starts two pods a second. */
const READY_WITHIN = "150s";

export async function helmPath(): Promise<string> {
  return process.env.HELM ?? (await output(["bash", inCheckout("test/e2e-cluster/helm")])).trim();
}

/** Applies objects by their JSON. */
export async function apply(...items: object[]): Promise<void> {
  await output(["kubectl", "apply", "-f", "-"], JSON.stringify({ apiVersion: "v1", kind: "List", items }));
}

export const namespaceOf = (name: string, level: string) => ({
  apiVersion: "v1",
  kind: "Namespace",
  metadata: { name, labels: { "pod-security.kubernetes.io/enforce": level } },
});

/** Installs or upgrades a release; `over` are values over its own. Resolves when it is ready. */
export async function upgrade(
  over: object = {},
  chart = inCheckout("deploy/chart"),
  of = INSTALLED,
): Promise<void> {
  const { release, namespace } = of;
  const how = ["-n", namespace, "--wait", "--timeout", READY_WITHIN];
  const folder = await mkdtemp(join(tmpdir(), "sandmesh-values-"));
  try {
    const files = [inCheckout(`test/e2e-cluster/values${FOREIGN ? "-foreign" : ""}.yaml`)];
    for (const [i, values] of [of.values, over].entries()) {
      const file = join(folder, `${i}.json`);
      await writeFile(file, JSON.stringify(values));
      files.push(file);
    }
    const given = files.flatMap((file) => ["-f", file]);
    await output([await helmPath(), "upgrade", "--install", release, chart, ...how, ...given]);
  } finally {
    await rm(folder, { recursive: true });
  }
  const installers = ["daemonset", "-l", `app.kubernetes.io/instance=${release}`];
  await kubectl("-n", namespace, "rollout", "status", ...installers, "--timeout=60s");
}

/** `keys`: the folder of its keys, its CA (`ca.crt`) and a user's credentials (`me.creds`). */
export async function install(keys: string, of = INSTALLED): Promise<void> {
  const { release, namespace, sandboxes, natsAddress } = of;
  const secrets = meshSecrets({
    stateDir: keys,
    release,
    namespace,
    tls: true,
    hosts: [natsAddress, ...OWN_NATS],
  });
  await apply(namespaceOf(namespace, "privileged"), namespaceOf(sandboxes, "privileged"), ...secrets);
  await upgrade({}, undefined, of);
  const credentials = mintUser({ stateDir: keys, tenant: "default", user: "me" });
  await writeFile(join(keys, "me.creds"), `${credentials}\n`, { mode: 0o600 });
}

if (import.meta.main) {
  const [keys] = process.argv.slice(2);
  if (keys === undefined) throw new Error("usage: install.ts KEYS_FOLDER");
  await install(keys);
}
