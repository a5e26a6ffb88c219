// The chart: what it renders is what the API server takes, what it must not take is refused, and what it configures works.
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseCreds } from "../../broker/credentials/index.ts";
import { connect } from "../../broker/link/connect.ts";
import type { Link } from "../../broker/link/link.ts";
import { findServerBinary } from "../../broker/server/index.ts";
import { until } from "../../broker/server/testing.ts";
import { holdPorts } from "../../broker/server/testing-cluster.ts";
import { meshSecrets } from "../../deploy/kubernetes/credentials.ts";
import { readPoolConfig } from "../../pool/config.ts";
import { makeProvider } from "../../pool/providers.ts";
import { openRecords } from "../../pool/records/jetstream.ts";
import { FOREIGN } from "../cluster/needs.ts";
import { output } from "../cluster/output.ts";
import { inCheckout, quiet } from "./cluster.ts";
import { helmPath } from "./install.ts";

setDefaultTimeout(120_000);
const CHART = inCheckout("deploy/chart");
let helm: string;
let work: string;
beforeAll(async () => {
  helm = await helmPath();
  work = mkdtempSync(join(tmpdir(), "sandmesh-chart-"));
});
afterAll(() => rmSync(work, { recursive: true, force: true }));

type Values = Record<string, unknown>;

/** Throws with Helm's complaint. */
async function render(values: Values = {}, ...more: string[]): Promise<string> {
  const file = join(work, "values.json");
  writeFileSync(file, JSON.stringify(values));
  return await output([helm, "template", "mesh", CHART, "-n", "sandmesh", "-f", file, ...more]);
}

interface Rendered {
  kind: string;
  metadata: { name: string; namespace?: string };
  data?: Record<string, string>;
  [more: string]: unknown;
}
const objectsOf = (yaml: string): Rendered[] =>
  yaml
    .split(/^---$/m)
    .map((part) => Bun.YAML.parse(part) as Rendered | null)
    .filter((each) => each !== null);

async function find(values: Values, kind: string, name: string): Promise<Rendered> {
  const found = objectsOf(await render(values)).find(
    (each) => each.kind === kind && each.metadata.name === name,
  );
  if (found === undefined) throw new Error(`no ${kind} ${name}`);
  return found;
}

test("the plain manifests are what the chart renders", async () => {
  const file = join(work, "manifests.yaml");
  await output(["env", `HELM=${helm}`, "bash", inCheckout("deploy/manifests/render"), file]);
  expect(readFileSync(inCheckout("deploy/manifests/sandmesh.yaml"), "utf8")).toBe(readFileSync(file, "utf8"));
});

test("helm finds no fault with it", async () => {
  expect(await output([helm, "lint", "--strict", CHART])).toContain("0 chart(s) failed");
});

const REFUSED: [why: string, values: Values, named: string][] = [
  ["a value that there is none of", { pools: {} }, "pools"],
  ["a misspelled one within", { nats: { replica: 3 } }, "replica"],
  ["a cluster without a majority", { nats: { replicas: 2 } }, "/nats/replicas"],
  ["no NATS at all", { nats: { enabled: false } }, "/nats/externalUrls"],
  ["a URL with a password in it", { nats: { externalUrls: ["nats://a:b@c"] } }, "/nats/externalUrls/0"],
  ["a way that there is none of", { daemon: { by: "nfs" } }, "/daemon/by"],
  [
    "another cluster by the name of its own",
    { pool: { providers: [{ name: "kubernetes", kind: "local" }] } },
    "/name",
  ],
  ["a relative folder on the node", { daemon: { hostFolder: "var/lib" } }, "/daemon/hostFolder"],
  ["a version that leads elsewhere", { daemon: { version: "../x" } }, "/daemon/version"],
  ["an unusable namespace", { sandboxNamespace: "A_b" }, "/sandboxNamespace"],
  ["a port below 1024, which its user may not listen on", { metrics: { port: 80 } }, "/metrics/port"],
  ["a network by the name of the built-in one", { networkPolicies: { named: { open: [] } } }, "'open'"],
  [
    "what is no CIDR",
    { networkPolicies: { blockedCIDRs: ["everything"] } },
    "/networkPolicies/blockedCIDRs/0",
  ],
];
describe("values.schema.json refuses", () => {
  for (const [why, values, named] of REFUSED) {
    test(why, async () => {
      const complaint = await render(values).then(
        () => "it was taken",
        (error: Error) => error.message,
      );
      expect(complaint).toContain("don't meet the specifications of the schema");
      expect(complaint).toContain(named);
    });
  }
});

const EGRESS = [{ to: [{ ipBlock: { cidr: "192.0.2.0/24" } }], ports: [{ port: 443, protocol: "TCP" }] }];
const TAKEN: [what: string, values: Values][] = [
  ["its defaults", {}],
  ["the daemon as an image volume", { daemon: { by: "image" } }],
  ["the daemon copied", { daemon: { by: "init" } }],
  [
    "NATS of its own, without TLS",
    { nats: { enabled: false, externalUrls: ["nats://nats.example:4222"] }, tls: { enabled: false } },
  ],
  [
    "everything set",
    {
      sandboxNamespace: "sandboxes",
      nats: {
        replicas: 5,
        // Another cluster's Services have other addresses.
        ...(FOREIGN ? {} : { clusterIP: "10.92.0.77" }),
        service: { type: "NodePort", annotations: { a: "b" } },
        persistence: { storageClass: "fast" },
        nodeSelector: { a: "b" },
        tolerations: [{ operator: "Exists" }],
        priorityClassName: "system-cluster-critical",
      },
      pool: {
        imagePullSecrets: ["registry"],
        settings: { maxBooting: 512 },
        kubernetes: { runtimeClass: "gvisor" },
        nodeSelector: { a: "b" },
        tolerations: [{ operator: "Exists" }],
        priorityClassName: "system-cluster-critical",
        podAnnotations: { a: "b" },
      },
      networkPolicies: {
        natsFrom: [{ namespaceSelector: { matchLabels: { trainers: "yes" } } }],
        natsExternalCIDRs: ["198.51.100.0/24"],
        named: { registry: EGRESS },
      },
    },
  ],
];
describe("the API server takes, as a dry run", () => {
  for (const [what, values] of TAKEN) {
    test(what, async () => {
      // Of another name than the one that is installed, whose fields that are for ever are as they are.
      const yaml = (await render(values)).replaceAll("mesh-", "other-");
      const file = join(work, "objects.yaml");
      writeFileSync(file, yaml);
      const how = ["apply", "--dry-run=server", "--validate=strict", "-f", file];
      const said = await output(["kubectl", ...how]);
      expect(said.trim().split("\n")).toHaveLength(objectsOf(yaml).length);
    });
  }
});

test("nodes are read where the pool places pods itself, and only then", async () => {
  const rightsOf = async (placement: string): Promise<unknown[]> =>
    objectsOf(await render({ pool: { kubernetes: { placement } } }))
      .filter(({ kind }) => kind === "ClusterRole")
      .map(({ rules }) => rules);
  expect(await rightsOf("scheduler")).toEqual([]);
  expect(await rightsOf("direct")).toEqual([
    [{ apiGroups: [""], resources: ["nodes"], verbs: ["list", "watch"] }],
  ]);
});

test("an owner of the pods is made, and may be read by the pool, where one is asked for and only then", async () => {
  const of = async (kubernetes: Values) => {
    const objects = objectsOf(await render({ sandboxNamespace: "boxes", pool: { kubernetes } }));
    const [role] = objects.filter(({ kind }) => kind === "Role");
    const maps = objects.filter(
      ({ kind, metadata }) => kind === "ConfigMap" && metadata.namespace === "boxes",
    );
    return { rules: role?.rules, names: maps.map(({ metadata }) => metadata.name) };
  };
  const pods = { apiGroups: [""], resources: ["pods"], verbs: expect.any(Array) };
  expect(await of({})).toEqual({ rules: [pods], names: [] });
  expect(await of({ ownerConfigMap: "owner" })).toEqual({
    rules: [pods, { apiGroups: [""], resources: ["configmaps"], resourceNames: ["owner"], verbs: ["get"] }],
    names: ["owner"],
  });
});

test("every object has its namespace, so that plain manifests go where they belong", async () => {
  const ofCluster = /PriorityLevelConfiguration|FlowSchema/;
  const lost = objectsOf(await render()).filter(
    ({ kind, metadata }) => !ofCluster.test(kind) && metadata.namespace !== "sandmesh",
  );
  expect(lost.map(({ kind }) => kind)).toEqual([]);
});

test("every pod is hardened, and only the installer's has root and a folder of the node", async () => {
  const pods = objectsOf(await render()).filter(({ kind }) => /StatefulSet|Deployment|DaemonSet/.test(kind));
  expect(pods).toHaveLength(3);
  for (const { kind, spec } of pods) {
    const text = JSON.stringify(spec);
    expect(text).toContain('"seccompProfile":{"type":"RuntimeDefault"}');
    expect(text).toContain('"allowPrivilegeEscalation":false');
    expect(text).toContain('"readOnlyRootFilesystem":true');
    expect(text).toContain('"drop":["ALL"]');
    expect([kind, text.includes('"runAsUser":0'), text.includes("hostPath")]).toEqual([
      kind,
      kind === "DaemonSet",
      kind === "DaemonSet",
    ]);
    expect([kind, text.includes('"automountServiceAccountToken":true')]).toEqual([
      kind,
      kind === "Deployment",
    ]);
  }
});

test("the pool and its provider take the settings that are rendered", async () => {
  for (const by of ["hostPath", "image", "init"]) {
    const { data } = await find(
      { daemon: { by }, pool: { settings: { maxBooting: 7 } } },
      "ConfigMap",
      "mesh-pool",
    );
    const file = join(work, "pool.json");
    writeFileSync(file, data?.["pool.json"] ?? "");
    const config = readPoolConfig(file, {});
    expect(config).toMatchObject({ maxBooting: 7, recordReplicas: 3, httpListen: "0.0.0.0:8080" });
    const [provider] = config.providers;
    const made = await makeProvider({ name: "kubernetes", settings: provider?.settings ?? {} }, quiet);
    await made.close();
  }
});

test("another cluster is a provider of the pool's, by weight, with its kubeconfig where its settings look for it", async () => {
  const kubeconfig = "/etc/sandmesh/kubeconfigs/west/config";
  const settings = { mesh: "m", kubeconfig, daemon: { by: "image", image: "daemon:1" } };
  const west = { name: "west", kind: "kubernetes", weight: 1, settings };
  const values = { pool: { weight: 3, providers: [west], kubeconfigSecrets: ["west"] } };
  const { data } = await find(values, "ConfigMap", "mesh-pool");
  const file = join(work, "pool.json");
  writeFileSync(file, data?.["pool.json"] ?? "");
  const [own, other, ...more] = readPoolConfig(file, {}).providers;
  expect([own?.name, own?.weight, other, more]).toEqual(["kubernetes", 3, west, []]);
  const pod = JSON.stringify((await find(values, "Deployment", "mesh-pool")).spec);
  expect(pod).toContain('"mountPath":"/etc/sandmesh/kubeconfigs/west","readOnly":true');
  expect(pod).toContain('"secretName":"west"');
});

test("alerts ask for metrics and codes that there are", async () => {
  const yaml = await render({ alerts: { enabled: true } }, "--show-only", "templates/alerts.yaml");
  const readme = readFileSync(inCheckout("pool/http/README.md"), "utf8");
  const errors = readFileSync(inCheckout("broker/contract/errors.ts"), "utf8");
  const asked = new Set(
    yaml.match(/\bsandmesh_[a-z_]+\b/g)?.map((name) => name.replace(/_(bucket|count)$/, "")),
  );
  expect(asked.size).toBeGreaterThan(8);
  for (const name of asked) expect(readme).toContain(`\`${name}\``);
  for (const [, codes = ""] of yaml.matchAll(/code=~"([^"]+)"/g)) {
    for (const code of codes.split("|")) expect(errors).toContain(`readonly code = "${code}"`);
  }
});

/** Three servers with the configuration that the chart gives to three pods, side by side on the loopback. */
async function startCluster(conf: string, folder: string) {
  const nats = await findServerBinary();
  const held = holdPorts(6);
  for (const { free } of held) free();
  const ports = held.map(({ port }) => port);
  const clients = ports.slice(0, 3);
  const clusters = ports.slice(3);
  const servers = [0, 1, 2].map((i) => {
    const state = join(folder, `nats-${i}`);
    mkdirSync(state);
    const own = conf
      .replaceAll("/etc/nats-tls", folder)
      .replace("/data", join(state, "data"))
      .replace('"0.0.0.0:4222"', `"127.0.0.1:${clients[i]}"`)
      .replace('"0.0.0.0:6222"', `"127.0.0.1:${clusters[i]}"`);
    writeFileSync(join(state, "nats.conf"), own);
    writeFileSync(join(state, "auth.conf"), readFileSync(join(folder, "auth.conf")));
    const env: Record<string, string> = { POD_NAME: `nats-${i}`, ROUTE_PASSWORD: "secret" };
    for (const [n, port] of clusters.entries())
      env[`ROUTE_${n}`] = `"nats-route://route:secret@localhost:${port}"`;
    const log = Bun.file(join(state, "log"));
    return Bun.spawn([nats, "-c", join(state, "nats.conf")], { env, stdout: log, stderr: log });
  });
  return { servers, urls: clients.map((port) => `tls://127.0.0.1:${port}`) };
}

test("three NATS servers as configured are one cluster, which keeps the records three times and bears one's loss", async () => {
  const folder = join(work, "cluster");
  mkdirSync(folder);
  const hosts = ["127.0.0.1"];
  const secrets = meshSecrets({ stateDir: folder, release: "mesh", namespace: "sandmesh", tls: true, hosts });
  const files: Record<string, string> = Object.assign({}, ...secrets.map(({ stringData }) => stringData));
  for (const [name, content] of Object.entries(files)) writeFileSync(join(folder, name), content);
  const { data } = await find({}, "ConfigMap", "mesh-nats");
  const { servers, urls } = await startCluster(data?.["nats.conf"] ?? "", folder);
  let link: Link | undefined;
  try {
    const credentials = parseCreds(files["pool.creds"] ?? "");
    const ca = files["ca.crt"] ?? "";
    link = await connect({
      urls,
      credentials: () => credentials,
      ca,
      name: "test",
      connectTimeoutMs: 30_000,
      patient: true,
    });
    const store = await openRecords(link, quiet, { replicas: 3, timeoutMs: 60_000 });
    const run = {
      version: 1 as const,
      tenant: "acme",
      run: "r",
      leaseMs: 1_000,
      expiresAt: 1,
      renewed: true,
    };
    await store.putRun(run);
    await until("a copy on each server", () =>
      [0, 1, 2].every((i) =>
        readdirSync(join(folder, `nats-${i}/data`), { recursive: true, encoding: "utf8" }).some((name) =>
          name.endsWith("streams/pool"),
        ),
      ),
    );
    servers[0]?.kill("SIGKILL");
    await store.putRun({ ...run, expiresAt: 2 });
    expect((await store.load()).runs).toMatchObject([{ run: "r", expiresAt: 2 }]);
    await store.close(5_000);
  } catch (error) {
    for (const i of [0, 1, 2])
      console.error(readFileSync(join(folder, `nats-${i}/log`), "utf8").slice(-2000));
    throw error;
  } finally {
    await link?.close();
    for (const server of servers) {
      server.kill("SIGKILL");
      await server.exited;
    }
  }
});
