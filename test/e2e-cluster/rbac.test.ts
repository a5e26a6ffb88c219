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
import { unheard } from "../../pool/testing/request.ts";
import { eventually } from "../e2e/program.ts";
import { kubectl, newMesh, removePods, settingsFor } from "./cluster.ts";
import { apply, INSTALLED } from "./install.ts";

setDefaultTimeout(120_000);
const { namespace, sandboxes, release } = INSTALLED;
const POOL = `system:serviceaccount:${namespace}:${release}-pool`;
const PROBE = "probe";
const SPEC = { image: "any:1" };
const never = new AbortController().signal;

const Role = v.object({
  rules: v.tuple([
    v.object({
      apiGroups: v.tuple([v.literal("")]),
      resources: v.tuple([v.literal("pods")]),
      verbs: v.array(v.string()),
    }),
  ]),
});

async function grantedVerbs(): Promise<string[]> {
  const text = await kubectl("-n", sandboxes, "get", "role", `${release}-pool`, "-o", "json");
  return v.parse(Role, JSON.parse(text)).rules[0].verbs;
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
const meshes = [newMesh(), newMesh()] as const;

async function setRole(verbs: string[]): Promise<void> {
  await apply({
    apiVersion: "rbac.authorization.k8s.io/v1",
    kind: "Role",
    metadata: { name: PROBE, namespace: sandboxes },
    rules: [{ apiGroups: [""], resources: ["pods"], verbs }],
  });
  const who = `--as=system:serviceaccount:${sandboxes}:${PROBE}`;
  const may = (verb: string): Promise<boolean> =>
    kubectl("auth", "can-i", verb, "pods", who, "-n", sandboxes).then(
      () => true,
      () => false,
    );
  const all = await grantedVerbs();
  await eventually("the role is in force", async () => {
    for (const verb of all) if ((await may(verb)) !== verbs.includes(verb)) return false;
    return true;
  });
}

beforeAll(async () => {
  work = await mkdtemp(join(tmpdir(), "sandmesh-rbac-"));
  kubeconfig = join(work, "kubeconfig");
  const metadata = { name: PROBE, namespace: sandboxes };
  await apply(
    { apiVersion: "v1", kind: "ServiceAccount", metadata },
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "RoleBinding",
      metadata,
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "Role", name: PROBE },
      subjects: [{ kind: "ServiceAccount", name: PROBE, namespace: sandboxes }],
    },
  );
  const token = (await kubectl("-n", sandboxes, "create", "token", PROBE)).trim();
  const admin = JSON.parse(await kubectl("config", "view", "--raw", "--minify", "-o", "json"));
  admin.users = [{ name: admin.users[0].name, user: { token } }];
  await writeFile(kubeconfig, JSON.stringify(admin));
  await chmod(kubeconfig, 0o600);
});
afterEach(async () => {
  for (const mesh of meshes) await removePods(mesh, sandboxes);
});
afterAll(async () => {
  for (const kind of ["role", "rolebinding", "serviceaccount"]) {
    await kubectl("-n", sandboxes, "delete", kind, PROBE, "--ignore-not-found");
  }
  await rm(work, { recursive: true, force: true });
});

/** A provider with the probe's rights; `complaints` are what it logs. */
function open(mesh: string, complaints: string[]): Provider {
  const settings = settingsFor(mesh, {
    kubeconfig,
    namespace: sandboxes,
    nodeSelector: { type: "kwok" },
    tolerations: [{ key: "kwok.x-k8s.io/node", operator: "Exists" }],
  });
  const log = pino({ level: "warn" }, { write: (line: string) => complaints.push(line) });
  return createKubernetesProvider(settings, log);
}

/** Everything that a pool asks of it; answers what it complained of, or threw. */
async function everything(): Promise<string[]> {
  const complaints: string[] = [];
  const [ours, theirs] = [open(meshes[0], complaints), open(meshes[1], complaints)];
  const ids = Array.from({ length: 4 }, newSandboxId);
  const running = new Set<string>();
  const unwatch = ours.watch((event) => event.type === "running" && running.add(event.sandbox));
  const attempt = async (what: () => Promise<unknown>): Promise<void> => {
    await what().catch((error: unknown) => complaints.push(String(error)));
  };
  try {
    const limit = AbortSignal.timeout(20_000);
    await attempt(() => Promise.all(ids.map((id) => ours.create(unheard(id, SPEC), limit))));
    if (complaints.length > 0) return complaints;
    await attempt(() => eventually("they run", () => running.size === ids.length, 20_000));
    // A name that another mesh has: whose it is must be looked up.
    await attempt(() =>
      theirs.create(unheard(ids[0] ?? "", SPEC), limit).catch((error: unknown) => {
        if (!(error instanceof ConflictError)) throw error;
      }),
    );
    await attempt(() => ours.list(never));
    const listed = ids.map((sandbox) => ({ sandbox, uid: undefined }));
    await attempt(async () => ours.remove(ids[0] ?? "", undefined, AbortSignal.timeout(20_000)));
    const all = await ours.list(never).catch(() => []);
    const rest = listed
      .slice(1)
      .map(({ sandbox }) => ({ sandbox, uid: all.find((e) => e.sandbox === sandbox)?.uid }));
    await attempt(async () => ours.removeMany?.(rest, AbortSignal.timeout(20_000)));
    return complaints;
  } finally {
    unwatch();
    await Promise.all([ours.close(), theirs.close()]);
  }
}

test("with all its verbs everything works, and without any one of them something does not", async () => {
  const all = await grantedVerbs();
  await setRole(all);
  expect(await everything()).toEqual([]);
  for (const verb of all) {
    await setRole(all.filter((each) => each !== verb));
    const complaints = (await everything()).join("\n");
    expect([verb, /403|forbidden|status 403/i.test(complaints) ? "refused" : complaints]).toEqual([
      verb,
      "refused",
    ]);
    for (const mesh of meshes) await removePods(mesh, sandboxes);
  }
});
