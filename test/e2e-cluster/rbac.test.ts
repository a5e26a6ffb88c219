// The pool's rights: each verb is needed, and nothing else works. On KWOK nodes, whose pods cost nothing.
import { afterAll, afterEach, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pino from "pino";
import * as v from "valibot";
import { ConflictError, newSandboxId } from "../../broker/contract/index.ts";
import { createKubernetesProvider } from "../../pool/provider/kubernetes/index.ts";
import type { Provider } from "../../pool/provider/provider.ts";
import { beside } from "../../pool/testing/errors.ts";
import { unheard } from "../../pool/testing/request.ts";
import { needing } from "../cluster/needs.ts";
import { output } from "../cluster/output.ts";
import { eventually } from "../e2e/program.ts";
import { inCheckout, kubectl, newMesh, removePods, settingsFor } from "./cluster.ts";
import { apply, helmPath, INSTALLED } from "./install.ts";

setDefaultTimeout(120_000);
const { namespace, sandboxes, release } = INSTALLED;
const POOL = `system:serviceaccount:${namespace}:${release}-pool`;
const PROBE = "probe";
const CLUSTER_PROBE = "sandmesh-test-probe";
const SPEC = { image: "any:1" };

/** One of the pool's rights: a verb on one kind of object, of some by name where `names` says so. */
interface Right {
  resource: string;
  verb: string;
  names?: string[];
}

const Rule = v.object({
  apiGroups: v.tuple([v.literal("")]),
  resources: v.tuple([v.string()]),
  verbs: v.array(v.string()),
  resourceNames: v.exactOptional(v.array(v.string())),
});
const Role = v.object({ rules: v.array(Rule) });

const rightsOf = (role: unknown): Right[] =>
  v
    .parse(Role, role)
    .rules.flatMap(({ resources: [resource], verbs, resourceNames: names }) =>
      verbs.map((verb) => ({ resource, verb, ...(names === undefined ? {} : { names }) })),
    );

/** The verbs on pods of the mesh that is installed. */
async function grantedVerbs(): Promise<string[]> {
  const text = await kubectl("-n", sandboxes, "get", "role", `${release}-pool`, "-o", "json");
  return rightsOf(JSON.parse(text)).map(({ verb }) => verb);
}

/** Where the pool places pods itself, and they have an owner: of the sandboxes' namespace, and of the cluster. */
async function allRights(): Promise<{ ofNamespace: Right[]; ofCluster: Right[] }> {
  const sets = [
    `sandboxNamespace=${sandboxes}`,
    "pool.kubernetes.placement=direct",
    `pool.kubernetes.ownerConfigMap=${PROBE}`,
  ];
  const shown = ["--show-only", "templates/pool.yaml", "--set", sets.join(",")];
  const yaml = await output([await helmPath(), "template", "m", inCheckout("deploy/chart"), ...shown]);
  const objects = yaml.split(/^---$/m).map((part) => Bun.YAML.parse(part) as { kind: string } | null);
  const of = (kind: string): Right[] => objects.filter((each) => each?.kind === kind).flatMap(rightsOf);
  return { ofNamespace: of("Role"), ofCluster: of("ClusterRole") };
}

/** What `who` may do in a namespace, beyond what every account may: asking about itself, and discovery. */
async function mayDo(who: string, where: string): Promise<string[]> {
  const list = await kubectl("auth", "can-i", "--list", "--no-headers", `--as=${who}`, "-n", where);
  return list
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "" && !/^selfsubject|^\[\/|^\s*\[/.test(line));
}

test("nothing but the pods of the sandboxes' namespace is the pool's, and of these no log, shell or token", async () => {
  const [line = "", ...more] = await mayDo(POOL, sandboxes);
  expect(more).toEqual([]);
  expect(line).toMatch(/^pods\s/);
  expect(
    line
      .match(/\[([a-z ]+)\]$/)?.[1]
      ?.split(" ")
      .sort(),
  ).toEqual((await grantedVerbs()).sort());
  for (const where of [namespace, "default", "kube-system"]) expect(await mayDo(POOL, where)).toEqual([]);
});

let work: string;
let kubeconfig: string;
let all: { ofNamespace: Right[]; ofCluster: Right[] };
const meshes = [newMesh(), newMesh()] as const;

const ruleOf = ({ resource, verb, names }: Right): object => ({
  apiGroups: [""],
  resources: [resource],
  verbs: [verb],
  ...(names === undefined ? {} : { resourceNames: names }),
});

async function mayProbe({ resource, verb, names }: Right): Promise<boolean> {
  const what = names === undefined ? resource : `${resource}/${names[0]}`;
  const who = `--as=system:serviceaccount:${sandboxes}:${PROBE}`;
  return await kubectl("auth", "can-i", verb, what, who, "-n", sandboxes).then(
    () => true,
    () => false,
  );
}

/** Gives the probe all of these rights but one. */
async function giveAllBut(missing: Right | undefined): Promise<void> {
  const apiVersion = "rbac.authorization.k8s.io/v1";
  const rules = (rights: Right[]): object[] => rights.filter((each) => each !== missing).map(ruleOf);
  await apply(
    {
      apiVersion,
      kind: "Role",
      metadata: { name: PROBE, namespace: sandboxes },
      rules: rules(all.ofNamespace),
    },
    { apiVersion, kind: "ClusterRole", metadata: { name: CLUSTER_PROBE }, rules: rules(all.ofCluster) },
  );
  const each = [...all.ofNamespace, ...all.ofCluster];
  await eventually("the roles are in force", async () => {
    const may = await Promise.all(each.map(mayProbe));
    return each.every((right, i) => may[i] === (right !== missing));
  });
}

beforeAll(async () => {
  work = await mkdtemp(join(tmpdir(), "sandmesh-rbac-"));
  kubeconfig = join(work, "kubeconfig");
  all = await allRights();
  const metadata = { name: PROBE, namespace: sandboxes };
  const apiGroup = "rbac.authorization.k8s.io";
  const subjects = [{ kind: "ServiceAccount", name: PROBE, namespace: sandboxes }];
  const bind = (kind: string, metadata: object, role: { kind: string; name: string }) => ({
    apiVersion: `${apiGroup}/v1`,
    kind,
    metadata,
    roleRef: { apiGroup, ...role },
    subjects,
  });
  await apply(
    { apiVersion: "v1", kind: "ServiceAccount", metadata },
    { apiVersion: "v1", kind: "ConfigMap", metadata },
    bind("RoleBinding", metadata, { kind: "Role", name: PROBE }),
    bind("ClusterRoleBinding", { name: CLUSTER_PROBE }, { kind: "ClusterRole", name: CLUSTER_PROBE }),
  );
  const token = (await kubectl("-n", sandboxes, "create", "token", PROBE)).trim();
  const admin = JSON.parse(await kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json"));
  admin.users = [{ name: admin.users[0].name, user: { token } }];
  await writeFile(kubeconfig, JSON.stringify(admin));
  await chmod(kubeconfig, 0o600);
});
afterEach(async () => {
  for (const mesh of meshes) await removePods(mesh, sandboxes);
});
afterAll(async () => {
  const own = ["-n", sandboxes, "delete", "role,rolebinding,configmap,serviceaccount", PROBE];
  await kubectl(...own, "--ignore-not-found");
  await kubectl("delete", "clusterrole,clusterrolebinding", CLUSTER_PROBE, "--ignore-not-found");
  await rm(work, { recursive: true, force: true });
});

/** A provider with the probe's rights; `complain` hears what it logs. */
function open(mesh: string, complain: (what: string) => void): Provider {
  const settings = settingsFor(mesh, {
    kubeconfig,
    namespace: sandboxes,
    placement: "direct",
    directNodes: "type=kwok",
    ownerConfigMap: PROBE,
    nodeSelector: { type: "kwok" },
    tolerations: [{ key: "kwok.x-k8s.io/node", operator: "Exists" }],
  });
  const log = pino({ level: "warn" }, { write: complain });
  return createKubernetesProvider(settings, log);
}

const disposable = (provider: Provider): Provider & AsyncDisposable =>
  Object.assign(provider, { [Symbol.asyncDispose]: () => provider.close() });

/** Everything that a pool asks of it, up to the first complaint; answers what it complained of, or threw. */
async function everything(): Promise<string[]> {
  const complaints: string[] = [];
  const complained = new AbortController();
  const complain = (what: string): void => {
    complaints.push(what);
    complained.abort();
  };
  const limit = AbortSignal.any([AbortSignal.timeout(20_000), complained.signal]);
  const [ours, theirs] = [open(meshes[0], complain), open(meshes[1], complain)];
  const ids = Array.from({ length: 4 }, newSandboxId);
  const running = new Set<string>();
  const unwatch = ours.watch((event) => event.type === "running" && running.add(event.sandbox));
  const uids = async (names: readonly string[]) => {
    const listed = await ours.list(limit);
    return names.map((sandbox) => ({ sandbox, uid: listed.find((each) => each.sandbox === sandbox)?.uid }));
  };
  const [first = "", ...others] = ids;
  const steps = [
    () => Promise.all(ids.map((id) => ours.create(unheard(id, SPEC), limit))),
    () => eventually("they run", () => running.size === ids.length || limit.aborted),
    // A name that another mesh has: whose it is must be looked up.
    () =>
      theirs.create(unheard(first, SPEC), limit).catch((error: unknown) => {
        if (!(error instanceof ConflictError)) throw error;
      }),
    () => ours.remove(first, undefined, limit),
    async () => Promise.all(ours.removeMany?.(await uids(others), limit) ?? []),
  ];
  try {
    for (const step of steps) {
      await step().catch((error: unknown) => complain(String(error)));
      if (complaints.length > 0) break;
    }
    return complaints;
  } finally {
    unwatch();
    await Promise.all([ours.close(), theirs.close()]);
  }
}

needing("kwok")(
  "with all its rights everything works, and without any one of them something does not",
  async () => {
    await giveAllBut(undefined);
    expect(await everything()).toEqual([]);
    const each = [...all.ofNamespace, ...all.ofCluster];
    expect([...new Set(each.map(({ resource }) => resource))]).toEqual(["pods", "configmaps", "nodes"]);
    for (const right of each) {
      await giveAllBut(right);
      const complaints = (await everything()).join("\n");
      const said = /403|forbidden|status 403/i.test(complaints) ? "refused" : complaints;
      expect([right.resource, right.verb, said]).toEqual([right.resource, right.verb, "refused"]);
      for (const mesh of meshes) await removePods(mesh, sandboxes);
    }
  },
);

needing("kwok")("a right that is away for a moment is waited for, where it was had before", async () => {
  await giveAllBut(undefined);
  const create = all.ofNamespace.find(({ resource, verb }) => `${verb} ${resource}` === "create pods");
  await using ours = disposable(open(meshes[0], () => undefined));
  const begin = () => ours.create(unheard(newSandboxId(), SPEC), AbortSignal.timeout(60_000));
  await begin();
  await giveAllBut(create);
  let ended = false;
  const begun = beside(
    begin().finally(() => {
      ended = true;
    }),
  );
  await Bun.sleep(1_000);
  expect(ended).toBe(false);
  await giveAllBut(undefined);
  await begun();
});
