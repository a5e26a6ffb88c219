// Installs the mesh from its chart onto the cluster, as a person would: namespaces, Secrets, helm.
//
//   bun test/e2e-cluster/install.ts KEYS_FOLDER      waits until the pool says that it is ready
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { meshSecrets, mintUser } from "../../deploy/kubernetes/credentials.ts";
import { inCheckout, kubectl, output } from "./cluster.ts";

/** As in values.yaml. */
export const INSTALLED = {
  release: "mesh",
  namespace: "sandmesh",
  sandboxes: "sandboxes",
  mesh: "e2e",
  natsAddress: "10.92.0.50",
} as const;

/** The node pulls nothing and starts two pods a second. */
const READY_WITHIN = "150s";

export async function helmPath(): Promise<string> {
  return process.env.HELM ?? (await output(["bash", inCheckout("test/e2e-cluster/helm")])).trim();
}

/** Applies objects by their JSON. */
export async function apply(...items: object[]): Promise<void> {
  const child = Bun.spawn(["kubectl", "apply", "-f", "-"], {
    stdin: new Blob([JSON.stringify({ apiVersion: "v1", kind: "List", items })]),
    stdout: "ignore",
    stderr: "pipe",
  });
  const said = await new Response(child.stderr).text();
  if ((await child.exited) !== 0) throw new Error(`kubectl apply: ${said}`);
}

export const namespaceOf = (name: string, level: string) => ({
  apiVersion: "v1",
  kind: "Namespace",
  metadata: { name, labels: { "pod-security.kubernetes.io/enforce": level } },
});

/** Installs or upgrades the release; `sets` are values over those of values.yaml. Resolves when it is ready. */
export async function upgrade(...sets: string[]): Promise<void> {
  const { release, namespace } = INSTALLED;
  const values = inCheckout("test/e2e-cluster/values.yaml");
  const chart = inCheckout("deploy/chart");
  const how = ["-n", namespace, "-f", values, "--wait", "--timeout", READY_WITHIN];
  const over = sets.flatMap((set) => ["--set-string", set]);
  await output([await helmPath(), "upgrade", "--install", release, chart, ...how, ...over]);
  await kubectl("-n", namespace, "rollout", "status", `daemonset/${release}-installer`, "--timeout=60s");
}

export async function install(keys: string): Promise<void> {
  const { release, namespace, sandboxes, natsAddress } = INSTALLED;
  const secrets = meshSecrets({ stateDir: keys, release, namespace, tls: true, hosts: [natsAddress] });
  await apply(namespaceOf(namespace, "privileged"), namespaceOf(sandboxes, "privileged"), ...secrets);
  await upgrade();
  const credentials = mintUser({ stateDir: keys, tenant: "default", user: "me" });
  await writeFile(join(keys, "me.creds"), `${credentials}\n`, { mode: 0o600 });
}

if (import.meta.main) {
  const [keys] = process.argv.slice(2);
  if (keys === undefined) throw new Error("usage: install.ts KEYS_FOLDER");
  await install(keys);
}
