// What goes wrong in a cluster, each with its typed error or none, and nothing left.
import { afterAll, afterEach, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { beside, errorOf } from "../../pool/testing/errors.ts";
import {
  type Mesh,
  QuotaExceededError,
  type Sandbox,
  SandboxLostError,
  type SandmeshError,
  UnsupportedError,
} from "../../sdk/typescript/mod.ts";
import { needing } from "../cluster/needs.ts";
import { frozen, killed, restartApiServer, slowed } from "../cluster/programs.ts";
import { eventually } from "../e2e/program.ts";
import { IMAGES } from "../images/kubernetes.ts";
import { inCheckout, killDaemon, killShim, kubectl, processesOf } from "./cluster.ts";
import { apply, INSTALLED } from "./install.ts";
import { ClusterMesh } from "./mesh.ts";

setDefaultTimeout(180_000);
const { sandboxes } = INSTALLED;
const LEASE_MS = 5_000;
const SLACK_MS = 10_000;
/** One kubelet on two shared cores starts about two pods a second. */
const BURST = 6;

let cluster: ClusterMesh;
let mesh: Mesh;
beforeAll(async () => {
  cluster = new ClusterMesh();
  mesh = await cluster.connect({ lease: "1m" });
});
afterEach(async () => {
  try {
    await cluster.nothingLeft(30_000);
  } finally {
    // What a failed test still holds is none of the next one's.
    await Promise.all((await mesh.list()).map(({ sandbox }) => mesh.release({ sandbox })));
  }
});
afterAll(() => cluster[Symbol.asyncDispose]());

/** Begun; the answer waits for all of them. */
const burst = (): (() => Promise<Sandbox[]>) =>
  beside(
    Promise.all(Array.from({ length: BURST }, () => mesh.acquire({ image: IMAGES.busybox, timeout: "2m" }))),
  );

needing("node")("a daemon that is killed: its command is lost by that name, and its pod goes", async () => {
  await using box = await mesh.acquire({ image: IMAGES.busybox });
  const running = errorOf(box.exec("sleep 100"));
  await killDaemon(box.id, sandboxes);
  const error = await running;
  expect(error).toBeInstanceOf(SandboxLostError);
  expect(error.toWire()).toMatchObject({ started: "unknown" });
  await cluster.nothingLeft(20_000);
});

needing("node")(
  "a pod's shim that is killed: its command is lost by that name, and the pod goes with all its processes",
  async () => {
    await using box = await mesh.acquire({ image: IMAGES.busybox });
    const uid = await kubectl("-n", sandboxes, "get", "pod", box.id, "-o", "jsonpath={.metadata.uid}");
    const running = errorOf(box.exec("sleep 100"));
    const runs = async () => (await box.commands()).some((command) => command.running);
    await eventually("its command runs", runs, 20_000);
    killShim(uid);
    const error = await running;
    expect(error).toBeInstanceOf(SandboxLostError);
    expect(error.toWire()).toMatchObject({ started: "unknown" });
    await cluster.nothingLeft(20_000);
    await eventually("no process of it", () => processesOf(new Set([uid])).length === 0, 20_000);
  },
);

needing("programs")(
  "a kubelet that is killed: commands go on, and what is acquired meanwhile comes when it is back",
  async () => {
    await using box = await mesh.acquire({ image: IMAGES.busybox });
    const running = beside(box.exec("until [ -e /tmp/go ]; do sleep 0.1; done; echo through"));
    const boxes = await killed("kubelet", async () => {
      const begun = burst();
      await cluster.begun();
      expect((await box.exec("echo meanwhile")).stdout.text).toBe("meanwhile\n");
      return begun;
    });
    await box.files.write("/tmp/go", "");
    expect((await running()).stdout.text).toBe("through\n");
    await cluster.whole([box, ...(await boxes())]);
  },
);

test("a namespace whose quota is used up refuses with QuotaExceededError, at once", async () => {
  const quota = ["-n", sandboxes, "resourcequota", "test"];
  await apply({
    apiVersion: "v1",
    kind: "ResourceQuota",
    metadata: { name: "test", namespace: sandboxes },
    spec: { hard: { pods: "0" } },
  });
  try {
    const counted = async () =>
      (await kubectl("get", ...quota, "-o", "jsonpath={.status.hard.pods}")) === "0";
    await eventually("the quota is counted", counted);
    expect(await errorOf(mesh.acquire({ image: IMAGES.busybox, timeout: "20s" }))).toBeInstanceOf(
      QuotaExceededError,
    );
  } finally {
    await kubectl("delete", ...quota);
  }
});

test("what the cluster's admission refuses is UnsupportedError, with its words", async () => {
  const name = "sandmesh-test";
  await apply(
    {
      apiVersion: "admissionregistration.k8s.io/v1",
      kind: "ValidatingAdmissionPolicy",
      metadata: { name },
      spec: {
        failurePolicy: "Fail",
        matchConstraints: {
          resourceRules: [
            { apiGroups: [""], apiVersions: ["v1"], operations: ["CREATE"], resources: ["pods"] },
          ],
        },
        validations: [
          { expression: "!('forbidden' in object.metadata.labels)", message: "the platform team says no" },
        ],
      },
    },
    {
      apiVersion: "admissionregistration.k8s.io/v1",
      kind: "ValidatingAdmissionPolicyBinding",
      metadata: { name },
      spec: {
        policyName: name,
        validationActions: ["Deny"],
        matchResources: { namespaceSelector: { matchLabels: { "kubernetes.io/metadata.name": sandboxes } } },
      },
    },
  );
  try {
    const probe = [
      "-n",
      sandboxes,
      "run",
      "probe",
      "--image=x",
      "--labels=forbidden=yes",
      "--dry-run=server",
    ];
    const inForce = () =>
      kubectl(...probe).then(
        () => false,
        (error) => /says no/.test(String(error)),
      );
    await eventually("the policy is in force", inForce, 60_000);
    const error = await errorOf(
      mesh.acquire({ image: IMAGES.busybox, labels: { forbidden: "yes" }, timeout: "20s" }),
    );
    expect(error).toBeInstanceOf(UnsupportedError);
    expect(error.message).toContain("the platform team says no");
  } finally {
    await kubectl("delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", name);
  }
});

test("a client that is killed in its burst leaves no pod beyond its lease and ten seconds", async () => {
  const argv = [inCheckout("test/e2e-cluster/client.ts"), cluster.url, cluster.credentials, cluster.ca];
  const client = Bun.spawn([process.execPath, ...argv, String(LEASE_MS), IMAGES.busybox, String(BURST)], {
    stdio: ["ignore", "ignore", "inherit"],
  });
  await cluster.begun();
  client.kill("SIGKILL");
  await client.exited;
  await cluster.nothingLeft(LEASE_MS + SLACK_MS);
});

needing("node")(
  "a pool that is killed in a burst: the next one goes on with it, nothing is lost and nothing is there twice",
  async () => {
    const boxes = burst();
    await cluster.begun();
    await cluster.kill("pool");
    await cluster.whole(await boxes());
  },
);

needing("node")(
  "NATS that is killed: the sandbox that lives goes on, with its files and its lease",
  async () => {
    await using box = await mesh.acquire({ image: IMAGES.busybox });
    await box.exec("echo kept > /tmp/file");
    await cluster.kill("nats");
    await cluster.answers();
    const said = () =>
      box.exec("cat /tmp/file").then(
        ({ stdout }) => stdout.text === "kept\n",
        (error: SandmeshError) => {
          if (error instanceof SandboxLostError) throw error;
          return false;
        },
      );
    await eventually("it answers again", said, 60_000);
    expect((await mesh.list()).map(({ sandbox, state }) => [sandbox, state])).toEqual([[box.id, "leased"]]);
    await box.release();
  },
);

needing("node")(
  "a node that is drained: its sandbox is lost as evicted, and an acquire that comes meanwhile waits for a node",
  async () => {
    await using box = await mesh.acquire({ image: IMAGES.busybox });
    const running = errorOf(box.exec("sleep 100"));
    const mine = [`--pod-selector=sandmesh.dev/mesh=${INSTALLED.mesh}`, "--force", "--ignore-daemonsets"];
    const next = async (): Promise<void> => {
      await using young = await mesh.acquire({ image: IMAGES.busybox, timeout: "2m" });
      await young.exec("true");
      await young.release();
    };
    let waiting: Promise<void>;
    try {
      await kubectl("drain", "node", ...mine, "--timeout=60s");
      expect(await running).toBeInstanceOf(SandboxLostError);
      await eventually("the loss is known", () => box.lost !== undefined);
      expect(box.lost).toMatchObject({ reason: "evicted" });
      waiting = next();
      await eventually("it waits", async () => (await cluster.podsLeft()).length === 1);
    } finally {
      await kubectl("uncordon", "node");
    }
    await waiting;
  },
);

needing("programs")(
  "an API server that is frozen in a burst: commands go on, and the burst with it once it thaws",
  async () => {
    await using first = await mesh.acquire({ image: IMAGES.busybox });
    const boxes = burst();
    await cluster.begun();
    await frozen("apiserver", async () => {
      for (let i = 0; i < 20; i++) expect((await first.exec(`echo ${i}`)).stdout.text).toBe(`${i}\n`);
      // Longer than one request would take, shorter than it may.
      await Bun.sleep(5_000);
    });
    await cluster.whole([first, ...(await boxes())]);
  },
);

needing("programs")(
  "an API server that is killed in a burst: what waits comes when it is back, and commands never wait",
  async () => {
    await using first = await mesh.acquire({ image: IMAGES.busybox });
    const boxes = burst();
    await cluster.begun();
    const back = restartApiServer();
    expect((await first.exec("echo meanwhile")).stdout.text).toBe("meanwhile\n");
    await back;
    const all = [first, ...(await boxes())];
    await cluster.whole(all);
  },
);

needing("programs")(
  "an etcd that answers in seconds: a burst comes late and whole, and commands do not wait for it",
  async () => {
    await using first = await mesh.acquire({ image: IMAGES.busybox });
    await slowed("etcd", async () => {
      const boxes = burst();
      await cluster.begun();
      expect((await first.exec("echo meanwhile")).stdout.text).toBe("meanwhile\n");
      await cluster.whole([first, ...(await boxes())]);
      await cluster.nothingLeft(60_000);
    });
  },
);

needing("programs")(
  "an etcd that does not answer: who cannot wait is told so by name, and what had been begun goes",
  async () => {
    const errors = await frozen("etcd", () =>
      Promise.all(
        Array.from({ length: BURST }, () => errorOf(mesh.acquire({ image: IMAGES.busybox, timeout: "6s" }))),
      ),
    );
    expect(errors.map(({ code }) => code)).toEqual(errors.map(() => "acquire_timeout"));
    await cluster.nothingLeft(60_000);
  },
);
