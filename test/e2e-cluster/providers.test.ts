// One pool over several namespaces, each a provider with its own Pod Security level and its own way for the daemon into a
// pod: all carry sandboxes, they share by weight, and who refuses is passed over.
import { afterAll, afterEach, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { loadTrajectories } from "../../deploy/replay/trajectory.ts";
import type { Mesh, Sandbox } from "../../sdk/typescript/mod.ts";
import { inMusl } from "../cluster/needs.ts";
import { eventually } from "../e2e/program.ts";
import { IMAGES } from "../images/kubernetes.ts";
import { kubectl, PULL_POLICY, podsOf, REAL_NODE } from "./cluster.ts";
import { apply, INSTALLED, MESH_IMAGES, namespaceOf, upgrade } from "./install.ts";
import { answerAsThemselves, ClusterMesh } from "./mesh.ts";
import { differing, outcomesOf, plain, type Replayed, replayBy, WITHOUT_SHELL } from "./replay.ts";

setDefaultTimeout(180_000);
const { mesh: name, namespace, release, sandboxes } = INSTALLED;
const DAEMON = { image: MESH_IMAGES.daemon, pullPolicy: PULL_POLICY };
const COPY = { command: ["/sandmesh-installer", "--copy", "/", "/target"] };
const STRICT = { capabilities: "strict", runAsNonRoot: true, readOnlyRoot: true };

interface Way {
  namespace: string;
  level: string;
  /** What the pod's volume of the daemon is. */
  volume: "hostPath" | "image" | "emptyDir";
  image: string;
  settings?: object;
}

/** By the provider's name; the first one is the chart's own. */
const WAYS: Record<string, Way> = {
  kubernetes: { namespace: sandboxes, level: "privileged", volume: "hostPath", image: IMAGES.busybox },
  image: {
    namespace: "way-image",
    level: "baseline",
    volume: "image",
    image: IMAGES.busybox,
    settings: { daemon: { by: "image", ...DAEMON } },
  },
  init: {
    namespace: "way-init",
    level: "restricted",
    volume: "emptyDir",
    image: IMAGES.user,
    settings: { daemon: { by: "init", ...DAEMON, ...COPY }, ...STRICT },
  },
};
const others = Object.entries(WAYS).filter(([, { settings }]) => settings !== undefined);

/** The right to a namespace's pods, as the chart's own Role has it. */
async function rightsIn(where: string): Promise<object[]> {
  const role = JSON.parse(await kubectl("-n", sandboxes, "get", "role", `${release}-pool`, "-o", "json"));
  const metadata = { name: "pool", namespace: where };
  const apiGroup = "rbac.authorization.k8s.io";
  return [
    { apiVersion: `${apiGroup}/v1`, kind: "Role", metadata, rules: role.rules },
    {
      apiVersion: `${apiGroup}/v1`,
      kind: "RoleBinding",
      metadata,
      roleRef: { apiGroup, kind: "Role", name: "pool" },
      subjects: [{ kind: "ServiceAccount", name: `${release}-pool`, namespace }],
    },
  ];
}

let cluster: ClusterMesh;
let mesh: Mesh;
beforeAll(async () => {
  const providers = others.map(([name, way]) => ({
    name,
    kind: "kubernetes",
    weight: 1,
    settings: {
      mesh: INSTALLED.mesh,
      namespace: way.namespace,
      nodeSelector: REAL_NODE,
      ...way.settings,
    },
  }));
  for (const [, way] of others) {
    await apply(namespaceOf(way.namespace, way.level), ...(await rightsIn(way.namespace)));
  }
  await upgrade({ pool: { weight: 1, providers } });
  cluster = new ClusterMesh();
  mesh = await cluster.connect({ lease: "1m" });
});
afterEach(async () => {
  for (const way of Object.values(WAYS)) {
    const gone = async () => (await podsOf(name, way.namespace)).length === 0;
    await eventually(`no pod is left in ${way.namespace}`, gone, 30_000);
  }
});
afterAll(async () => {
  await cluster[Symbol.asyncDispose]();
  await upgrade();
  for (const [, way] of others) await kubectl("delete", "namespace", way.namespace, "--wait=false");
});

describe("the daemon comes into a pod", () => {
  for (const [provider, { namespace: where, level, volume, image }] of Object.entries(WAYS)) {
    test(`by ${volume}, in a namespace that is ${level}`, async () => {
      await using box = await mesh.acquire({ image, provider, timeout: "2m" });
      const path = "jsonpath={.spec.volumes[?(@.name=='sandmesh-daemon')]}";
      const said = await kubectl("-n", where, "get", "pod", box.id, "-o", path);
      expect(Object.keys(JSON.parse(said)).filter((key) => key !== "name")).toEqual([volume]);
      const shell = await box.shell({ shell: "sh" });
      await shell.exec("N=7");
      expect((await shell.exec("echo $N $(id -u)")).stdout.text).toBe(
        `7 ${level === "restricted" ? 1000 : 0}\n`,
      );
      const written = await box.exec("touch /made");
      expect(written.stderr.text.includes("Read-only file system")).toBe(level === "restricted");
      await box.release();
    });
  }
});

describe("where everything is restricted, without root and on a root that cannot be written", () => {
  const acquire = (image: string) =>
    mesh.acquire({ image, provider: "init", user: "1000:1000", timeout: "2m" });

  // Of busybox's, 37 of 100 call bash itself, programs that it has not, or have bash's own words and options of GNU's programs.
  for (const [what, image, shell, least, on] of [
    ["a Debian image", IMAGES.debian, "/bin/bash", 0.1, test],
    ["busybox", IMAGES.busybox, "sh", 0.45, test],
    ["busybox linked to musl", IMAGES.musl, "sh", 0.45, inMusl()],
  ] as const) {
    on(`recorded commands go as recorded on ${what}`, async () => {
      const some = plain(await loadTrajectories(), false);
      await using box = await acquire(image);
      const replayed: Replayed[] = [];
      for (const trajectory of some) replayed.push(...(await replayBy(shell, box, trajectory)));
      expect(replayed.length).toBeGreaterThan(50);
      const { share, which } = differing(replayed);
      expect(share, which).toBeLessThan(least);
      await box.release();
    });
  }

  test("an image without a shell says so of each recorded command, and goes on", async () => {
    const [trajectory] = plain(await loadTrajectories(), false);
    if (trajectory === undefined) throw new Error("no trajectory");
    for (const [image, argv] of WITHOUT_SHELL) {
      await using box = await acquire(image);
      const outcomes = await outcomesOf("/bin/sh", box, trajectory);
      expect(outcomes).toEqual(outcomes.map(() => "no_such_program"));
      expect((await box.exec([...argv])).stdout.text).toBe("on\n");
      await box.release();
    }
  });
});

/** Sandboxes in each provider's namespace. */
async function spread(): Promise<Record<string, number>> {
  const counted = Object.entries(WAYS).map(async ([provider, way]) => {
    return [provider, (await podsOf(name, way.namespace)).length] as const;
  });
  return Object.fromEntries(await Promise.all(counted));
}

/** They run wherever they are, since this image's user is not root; each answers as itself. */
async function someAnywhere(count: number): Promise<Sandbox[]> {
  const spec = { image: IMAGES.user, timeout: "2m" } as const;
  const boxes = await Promise.all(Array.from({ length: count }, () => mesh.acquire(spec)));
  await answerAsThemselves(boxes);
  return boxes;
}

test("of equal weight they share a burst equally", async () => {
  const boxes = await someAnywhere(6);
  expect(await spread()).toEqual({ kubernetes: 2, image: 2, init: 2 });
  await Promise.all(boxes.map((box) => box.release()));
});

test("one whose quota is used up is passed over, and the others take its share", async () => {
  const metadata = { name: "full", namespace: "way-image" };
  await apply({ apiVersion: "v1", kind: "ResourceQuota", metadata, spec: { hard: { pods: "0" } } });
  const quota = ["-n", metadata.namespace, "resourcequota", metadata.name];
  const counted = async () => (await kubectl("get", ...quota, "-o", "jsonpath={.status.hard.pods}")) === "0";
  await eventually("the quota is counted", counted);
  const boxes = await someAnywhere(4);
  expect(await spread()).toMatchObject({ image: 0 });
  await Promise.all(boxes.map((box) => box.release()));
});
