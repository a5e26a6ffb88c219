// The whole way on a real node: acquire, exec, release, in pods of unmodified images; and what ends otherwise.
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { replay } from "../../deploy/replay/replay.ts";
import { loadTrajectories } from "../../deploy/replay/trajectory.ts";
import { parseMetrics, reading } from "../../pool/http/testing.ts";
import { errorOf } from "../../pool/testing/errors.ts";
import { ImageError, type Mesh, SandboxLostError } from "../../sdk/typescript/mod.ts";
import { lines } from "../bench/lines.ts";
import { FOREIGN, inMusl, needing } from "../cluster/needs.ts";
import { eventually } from "../e2e/program.ts";
import { IMAGES } from "../images/kubernetes.ts";
import { inCheckout, kubectl, processesOf } from "./cluster.ts";
import { INSTALLED } from "./install.ts";
import { ClusterMesh } from "./mesh.ts";
import { differing, outcomesOf, plain, replayBy, WITHOUT_SHELL } from "./replay.ts";

setDefaultTimeout(180_000);
const LEASE_MS = 5_000;
const SLACK_MS = 10_000;
const PODS = ["-n", INSTALLED.sandboxes];

let cluster: ClusterMesh;
let mesh: Mesh;
beforeAll(async () => {
  cluster = new ClusterMesh();
  mesh = await cluster.connect({ lease: "1m" });
});
afterAll(async () => {
  await cluster[Symbol.asyncDispose]();
});

test("a busybox-only image: its environment and folder are kept, bytes come back whole, and nothing is left", async () => {
  await using box = await mesh.acquire({ image: IMAGES.busybox, memory: "64MiB", env: { MINE: "yes" } });
  const said = await box.exec("echo $FROM_IMAGE $MINE $(pwd) $(id -u); cat /proc/self/status | grep CapEff");
  expect(said.stdout.text).toStartWith("kept yes /home/agent 0\n");
  expect((await box.exec(["head", "-c", "3000000", "/dev/zero"])).stdout.bytes.length).toBe(3_000_000);
  expect((await box.exec("exit 7")).exitCode).toBe(7);
  const uid = await kubectl(...PODS, "get", "pod", box.id, "-o", "jsonpath={.metadata.uid}");
  if (!FOREIGN) expect(processesOf(new Set([uid])).length).toBeGreaterThan(0);
  await box.release();
  expect(await cluster.podsLeft()).toEqual([]);
  expect(processesOf(new Set([uid]))).toEqual([]);
});

test("a pod has no token, no variables of services and no way to more privileges", async () => {
  const service = "probe";
  await kubectl(...PODS, "create", "service", "clusterip", service, "--tcp=80:80");
  try {
    await using box = await mesh.acquire({ image: IMAGES.busybox });
    const asked = ["ls /var/run/secrets 2>&1", "env | grep -c PROBE_", "grep NoNewPrivs /proc/self/status"];
    const said = (await box.exec(asked.join("; "))).stdout.text;
    expect(said).toContain("No such file");
    expect(said).toContain("\n0\n");
    expect(said).toMatch(/NoNewPrivs:\s1/);
  } finally {
    await kubectl(...PODS, "delete", "service", service);
  }
});

test("an image whose user is not root", async () => {
  await using box = await mesh.acquire({ image: IMAGES.user });
  expect((await box.exec("id -u; touch /tmp/a && echo made")).stdout.text).toBe("1000\nmade\n");
  await box.release();
});

test("an image of one static program and nothing else", async () => {
  await using box = await mesh.acquire({ image: IMAGES.scratch });
  expect((await box.exec(["/echo", "hello"])).stdout.text).toBe("hello\n");
  await box.release();
});

test("an image of one program linked to musl", async () => {
  await using box = await mesh.acquire({ image: IMAGES.muslProgram });
  expect((await box.exec(["/say", "from", "musl"])).stdout.text).toBe("from musl\n");
  await box.release();
});

inMusl()("an image whose only libc is musl: its shell, a session in it, and its users", async () => {
  await using box = await mesh.acquire({ image: IMAGES.musl });
  const said = await box.exec(
    "grep -o '/lib/ld-musl.*' /proc/$$/maps | sort -u; find /lib -name 'libc*'; id -un",
  );
  expect(said.stdout.text).toMatch(/^\/lib\/ld-musl-\w+\.so\.1\nroot\n$/);
  const shell = await box.shell({ shell: "sh" });
  await shell.exec("N=7; cd /home/agent");
  expect((await shell.exec("echo $N $(pwd)")).stdout.text).toBe("7 /home/agent\n");
  expect((await box.exec("id -un; touch /tmp/a && echo made", { user: "agent" })).stdout.text).toBe(
    "agent\nmade\n",
  );
  await box.release();
});

test("recorded trajectories of agents, side by side in pods of a Debian image, go as they were recorded", async () => {
  const all = await loadTrajectories();
  const rare = all.filter(({ source_repo }) => source_repo !== "princeton-nlp/intercode");
  const chosen = [...rare, ...all.filter((_, i) => i % 25 === 3)];
  await using run = mesh.run();
  const replayed = await Promise.all(
    chosen.map(async (trajectory) => {
      const box = await run.acquire({ image: IMAGES.debian, timeout: "2m" });
      return { id: trajectory.id, steps: await replay(box, trajectory) };
    }),
  );
  const verdicts = replayed.flatMap(({ steps }) => steps.map(({ verdict }) => verdict.exit));
  const differs = replayed.flatMap(({ id, steps }) =>
    steps.filter(({ verdict }) => verdict.exit === "differs").map(({ step }) => `${id}: ${step.command}`),
  );
  expect(verdicts.length).toBeGreaterThan(30);
  // Few: another machine than the recorded one, with other programs.
  expect(differs.length / verdicts.length, differs.join("\n")).toBeLessThan(0.1);
});

for (const [what, image, on] of [
  ["busybox's shell and programs", IMAGES.busybox, test],
  ["those of busybox linked to musl", IMAGES.musl, inMusl()],
] as const) {
  on(`of the same commands most go as recorded by ${what}, too`, async () => {
    const some = plain(await loadTrajectories(), true).filter((_, i) => i % 16 === 5);
    await using run = mesh.run();
    const replayed = await Promise.all(
      some.map(async (trajectory) => {
        const box = await run.acquire({ image, timeout: "2m" });
        return await replayBy("sh", box, trajectory);
      }),
    );
    const { share, which } = differing(replayed.flat());
    // bash's own words, and options of GNU's programs: 14 of those 49 whose recorded exit is known, in both.
    expect(share, which).toBeLessThan(0.3);
  });
}

test("an image without a shell says so of each command, and goes on", async () => {
  const [trajectory] = plain(await loadTrajectories(), false);
  if (trajectory === undefined) throw new Error("no trajectory");
  for (const [image, argv] of WITHOUT_SHELL) {
    await using box = await mesh.acquire({ image });
    const outcomes = await outcomesOf("/bin/sh", box, trajectory);
    expect(outcomes).toEqual(outcomes.map(() => "no_such_program"));
    expect((await box.exec([...argv])).stdout.text).toBe("on\n");
    await box.release();
  }
});

test("a user by number, as the spec asks", async () => {
  await using box = await mesh.acquire({ image: IMAGES.busybox, user: "1000:1001" });
  expect((await box.exec("id -u; id -g")).stdout.text).toBe("1000\n1001\n");
  await box.release();
});

// On a node with cgroups of version 2 kubelet has the kernel end the whole container, unless it is told otherwise.
needing("node")(
  "a command beyond the memory limit is told as killed for memory, with the limit, and the sandbox lives",
  async () => {
    await using box = await mesh.acquire({ image: IMAGES.debian, memory: "96MiB", timeout: "2m" });
    await box.exec("echo kept > /tmp/f; sleep 300 > /dev/null 2>&1 &");
    const hog = await box.exec(["dd", "if=/dev/zero", "of=/dev/null", "bs=300M", "count=1"]);
    expect(hog.outcome).toEqual({ type: "oom_killed", limit_bytes: 96 * 1024 * 1024 });
    expect((await box.exec("kill -9 $$")).outcome).toMatchObject({ type: "signaled", signal: "SIGKILL" });
    expect((await box.exec("cat /tmp/f; cat /proc/[0-9]*/comm | grep -c sleep")).stdout.text).toBe(
      "kept\n1\n",
    );
    const info = await box.info();
    expect(info.memory_limit_bytes).toBe(96 * 1024 * 1024);
    await box.release();
  },
);

test("an image that does not exist is an ImageError with the runtime's text, long before the acquire's own end", async () => {
  const began = performance.now();
  const error = await errorOf(mesh.acquire({ image: "127.0.0.1:1/no/such:image", timeout: "100s" }));
  expect(error).toBeInstanceOf(ImageError);
  expect(error.message).toContain("no/such:image");
  expect(performance.now() - began).toBeLessThan(60_000);
  await cluster.nothingLeft(20_000);
});

test("a pod that somebody deletes is lost, by that name, and its command's caller hears it", async () => {
  await using box = await mesh.acquire({ image: IMAGES.busybox });
  const running = errorOf(box.exec("sleep 100"));
  await kubectl(...PODS, "delete", "pod", box.id, "--wait=false");
  const error = await running;
  expect(error).toBeInstanceOf(SandboxLostError);
  await eventually("the loss is known", () => box.lost !== undefined);
  expect(box.lost).toMatchObject({ reason: "deleted" });
  await cluster.nothingLeft(20_000);
});

test("a client that is killed leaves no pod beyond its lease and ten seconds", async () => {
  const argv = [inCheckout("test/e2e-cluster/client.ts"), cluster.url, cluster.credentials, cluster.ca];
  const client = Bun.spawn([process.execPath, ...argv, String(LEASE_MS), IMAGES.busybox, "3"], {
    stdout: "pipe",
    stderr: "inherit",
  });
  for await (const line of lines(client.stdout)) if (line === "granted") break;
  expect(await cluster.podsLeft()).toHaveLength(3);
  client.kill("SIGKILL");
  await client.exited;
  await cluster.nothingLeft(LEASE_MS + SLACK_MS);
});

/** What the pool's Service says of itself; another cluster's is reached through its API server alone. */
async function scraped(): Promise<string> {
  const { namespace, release } = INSTALLED;
  const service = `${release}-pool`;
  if (FOREIGN) {
    const path = `/api/v1/namespaces/${namespace}/services/${service}:8080/proxy/metrics`;
    return await kubectl("get", "--raw", path);
  }
  const path = "jsonpath={.spec.clusterIP}";
  const address = await kubectl("-n", namespace, "get", "service", service, "-o", path);
  return await (await fetch(`http://${address}:8080/metrics`)).text();
}

test("the pool's metrics, in the cluster: a scraper can read them, and they know of the requests to the API server", async () => {
  await using box = await mesh.acquire({ image: IMAGES.busybox });
  const samples = parseMetrics(await scraped());
  expect(reading(samples, "sandmesh_pool_sandboxes", { state: "leased" })).toBe(1);
  expect(reading(samples, "sandmesh_pool_ready")).toBe(1);
  // At least the create, the list and the watch.
  const labels = { provider: "kubernetes", what: "sent" };
  expect(reading(samples, "sandmesh_provider_requests_total", labels)).toBeGreaterThan(1);
  await box.release();
});

needing("node")(
  "a pool that is killed: commands go on without it, and the next one has the sandbox and releases it",
  async () => {
    await using box = await mesh.acquire({ image: IMAGES.busybox });
    await cluster.kill("pool");
    expect((await box.exec("echo still")).stdout.text).toBe("still\n");
    await cluster.answers();
    expect((await mesh.list()).map(({ sandbox }) => sandbox)).toEqual([box.id]);
    expect((await box.exec("echo after")).stdout.text).toBe("after\n");
    await box.release();
    expect(await cluster.podsLeft()).toEqual([]);
  },
);
